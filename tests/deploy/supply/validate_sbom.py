"""Hold a bill of materials against the schema of CycloneDX 1.6, by the library of its makers.

    uv run --with 'cyclonedx-python-lib[json-validation]' \\
        python tests/deploy/supply/validate_sbom.py PATH

The library is no dependency of Bos, so `make sbom` fetches it for this.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

KINDS = {"pypi", "golang"}
"""What there must be components of."""


def problems(text: str) -> list[str]:
    """What is wrong with the document, in words."""
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        return [str(wrong)]
    purls = [str(each["purl"]) for each in json.loads(text)["components"]]
    counts = Counter(purl.removeprefix("pkg:").partition("/")[0] for purl in purls)
    print(", ".join(f"{count} of {kind}" for kind, count in sorted(counts.items())))
    return [f"names no package of {kind}" for kind in sorted(KINDS - set(counts))]


def main(arguments: list[str]) -> int:
    """Say what is wrong with the document at the given path."""
    if len(arguments) != 1:
        print("usage: python tests/deploy/supply/validate_sbom.py PATH", file=sys.stderr)
        return 2
    found = problems(Path(arguments[0]).read_text("utf-8"))
    for each in found:
        print(f"{arguments[0]}: {each}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
