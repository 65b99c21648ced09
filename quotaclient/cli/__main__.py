"""`python -m quotaclient.cli`, for when the command itself is not on PATH."""

import sys

from quotaclient.cli import main

if __name__ == "__main__":  # the replicas of the demo import this module too
    sys.exit(main())
