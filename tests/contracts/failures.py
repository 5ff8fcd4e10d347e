"""``make test-again``: names the tests that failed beside others; many are no accident."""

import json
import sys
from pathlib import Path

_FAILED = Path(__file__).resolve().parents[2] / ".pytest_cache/v/cache/lastfailed"


def main(most: int) -> int:
    """Exit code 0 if at least one and at most ``most`` tests failed in the last run."""
    failed = sorted(json.loads(_FAILED.read_text())) if _FAILED.exists() else []
    for test in failed:
        sys.stdout.write(f"failed beside others, tried once more alone: {test}\n")
    if not 0 < len(failed) <= most:
        sys.stdout.write(f"{len(failed)} tests failed: none is tried once more\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
