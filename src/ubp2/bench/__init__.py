"""Benchmarks that print ratios measured within one run: machines are shared and noisy, ratios travel."""
