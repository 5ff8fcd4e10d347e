"""Write the bill of materials of Bos: CycloneDX 1.6, JSON, from the locks alone.

    python tests/deploy/supply/sbom.py build/bos.cdx.json

The same locks give the same file: no time, no random serial number.
"""

import hashlib
import json
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from licences import Rules
from packages import ROOT, Package, all_packages


def sbom(packages: list[Package], rules: Rules, version: str) -> dict[str, Any]:
    """The document."""
    components = [_component(each, rules) for each in sorted(packages, key=lambda p: p.purl)]
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).digest()
    root = {"type": "application", "bom-ref": "bos", "name": "bos", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {"component": {**root, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
        "dependencies": [{"ref": "bos", "dependsOn": [each["purl"] for each in components]}],
    }


def _component(package: Package, rules: Rules) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
    }
    if licence := rules.licence_of(package):
        found["licenses"] = [{"license": {"name": licence}}]
    if package.hashes:
        # Each file of the release has its own.
        found["properties"] = [
            {"name": "bos:sha256", "value": digest} for digest in sorted(package.hashes)
        ]
    return found


def main(arguments: list[str]) -> int:
    """Write the document to the given path."""
    if len(arguments) != 1:
        print("usage: python tests/deploy/supply/sbom.py PATH", file=sys.stderr)
        return 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    packages = all_packages()
    document = sbom(packages, Rules.load(), project["version"])
    path = Path(arguments[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{path}: {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
