"""Ask Bos one question by REST: the chart's test. Ends with 0 if the answer is there.

Usage: ask.py URL KEY_FILE SECONDS QUESTION
"""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path


def main(url: str, key_file: str, seconds: str, question: str) -> int:
    """Ask, and print the answer or why there is none."""
    key = Path(key_file).read_text(encoding="utf-8").split("\n", 1)[0].strip()
    request = urllib.request.Request(  # noqa: S310 - the address is the chart's own
        f"{url}/v1/runs:ask",
        data=json.dumps({"question": question}).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=float(seconds)) as reply:  # noqa: S310
            answer = json.load(reply)
    except urllib.error.HTTPError as error:
        print(f"HTTP {error.code}: {error.read(2000).decode('utf-8', 'replace')}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"No answer from {url}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2)[:4000])
    status = answer.get("status", "")
    if status != "RUN_STATUS_SUCCEEDED" or not answer.get("answer"):
        print(f"The run ended with {status or 'no status'}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
