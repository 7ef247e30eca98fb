"""`python -m ubp2` is the command `ubp2`."""

import sys

from ubp2.cli import main

if __name__ == "__main__":
    sys.exit(main())
