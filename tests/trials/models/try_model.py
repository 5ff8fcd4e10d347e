"""`make trial NAME=model`: asks the demo questions of the configured model; see docs/models.md."""

import sys

from bos_try.command import main

if __name__ == "__main__":
    sys.exit(main())
