"""``make check``: no circle of imports in libs, services and the web console.

Imports for type checking count: a circle of them is two modules that cannot be read one before the
other, however late the interpreter finds out. So do imports inside functions.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
from import_floors import all_packages

ROOT = Path(__file__).resolve().parents[2]
_CONSOLE = ROOT / "services/console/src"
_TYPESCRIPT_IMPORT = re.compile(r'\bfrom\s+"(\.[^"]+)"|\bimport\(?\s*"(\.[^"]+)"')


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Modules each of which imports the next one, the first and the last the same; or none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found[::-1]
    return []


def imports_of(packages: Iterable[str]) -> dict[str, set[str]]:
    """What each module of these packages imports of them."""
    first, *others = packages
    graph = grimp.build_graph(first, *others, exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def typescript_imports(folder: Path) -> dict[str, set[str]]:
    """What each TypeScript file below ``folder`` imports of it, imports of types included."""
    files = {path for path in folder.rglob("*") if path.suffix in {".ts", ".tsx"}}
    imports: dict[str, set[str]] = {}
    for path in files:
        named = ["".join(each) for each in _TYPESCRIPT_IMPORT.findall(path.read_text("utf-8"))]
        targets = [(path.parent / name).resolve() for name in named]
        found = {
            file
            for target in targets
            for suffix in ("", ".ts", ".tsx", "/index.ts", "/index.tsx")
            if (file := Path(f"{target}{suffix}")) in files
        }
        imports[str(path.relative_to(folder))] = {str(each.relative_to(folder)) for each in found}
    return imports


def main() -> int:
    """Print a circle; 1 if there is one."""
    found = circle(imports_of(all_packages(ROOT)) | typescript_imports(_CONSOLE))
    if found:
        print("circle of imports:", " -> ".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
