"""`python -m statsprep`."""

import sys

from statsprep.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
