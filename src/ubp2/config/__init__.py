"""The configuration: what can be set, named settings, derived values and checks, files."""
