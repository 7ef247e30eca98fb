"""`ubp2 doctor`: whether this machine can do what a person will ask of it, and what to do where it cannot."""
