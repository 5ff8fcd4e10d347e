"""``make check``: no circle of imports in libs, services and the web console.

Imports for type checking count: a circle of them is two modules that cannot be read one before the
other, however late the interpreter finds out. So do imports inside functions.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import grimp
from import_floors import all_packages

ROOT = Path(__file__).resolve().parents[2]
_CONSOLE = ROOT / "services/console/src"
_TYPESCRIPT_IMPORT = re.compile(r'\bfrom\s+"(\.[^"]+)"|\bimport\(?\s*"(\.[^"]+)"')


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Modules that reach one another, as sorted groups; each import leads from key to value."""
    reached = {module: _behind(module, imports) for module in imports}
    groups = {
        tuple(sorted(other for other in behind if module in reached.get(other, ())))
        for module, behind in reached.items()
        if module in behind
    }
    return sorted(map(list, groups))


def _behind(start: str, imports: Mapping[str, Iterable[str]]) -> set[str]:
    """Everything that ``start`` imports, directly or not."""
    seen: set[str] = set()
    left = list(imports.get(start, ()))
    while left:
        module = left.pop()
        if module not in seen:
            seen.add(module)
            left += imports.get(module, ())
    return seen


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


def steps(circle: Iterable[str], imports: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """The imports that make a circle, one a line."""
    inside = set(circle)
    for module in sorted(inside):
        for other in sorted(inside & set(imports[module])):
            yield f"  {module} imports {other}"


def main() -> int:
    """Print every circle; 1 if there is one."""
    imports = imports_of(all_packages(ROOT)) | typescript_imports(_CONSOLE)
    found = circles(imports)
    for circle in found:
        print("circle of imports:", ", ".join(circle), file=sys.stderr)
        print(*steps(circle, imports), sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
