"""Folders of runs: who may write, episodes, metrics, several seeds."""
