"""Laboratories: one learned part of the agent, tried out on recorded episodes without a run around it."""
