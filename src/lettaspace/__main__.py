"""`python -m lettaspace`."""

import sys

from lettaspace.cli import main

if __name__ == "__main__":
    sys.exit(main())
