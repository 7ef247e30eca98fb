"""`ubp2 tune`: the settings that suit one's own environment, searched with Ray Tune."""
