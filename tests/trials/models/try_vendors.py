"""`make trial NAME=vendors`: our requests through LiteLLM, for each vendor."""

import sys

from bos_try.vendors import main

if __name__ == "__main__":
    sys.exit(main())
