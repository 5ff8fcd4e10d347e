"""Process that makes one PDF: its input is data only, its memory and time are limited.

It reads a request as JSON from its standard input and writes the PDF to its standard output. The
compiler sees an empty folder and no packages, so there is nothing that it could fetch or include.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

TEMPLATE: Final = Path(__file__).with_name("template.typ")
UNKNOWN_FONT: Final = 3
"""Exit code where there is no font of the wanted family; the families are written out."""


def main() -> int:
    """Make the PDF; returns the exit code."""
    request: dict[str, Any] = json.load(sys.stdin)
    memory = request["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"]))
    import typst

    fonts = typst.Fonts(include_system_fonts=False, font_paths=list(request["font_folders"]))
    wanted = request["font"]
    if wanted and wanted not in fonts.families():
        sys.stdout.write("\n".join(sorted(fonts.families())))
        return UNKNOWN_FONT
    with tempfile.TemporaryDirectory() as empty:
        compiler = typst.Compiler(
            TEMPLATE.read_bytes(),
            root=empty,
            font_paths=fonts,
            package_path=empty,
            package_cache_path=empty,
        )
        made = compiler.compile(
            format="pdf",
            sys_inputs={"document": json.dumps(request["document"], ensure_ascii=False)},
            timestamp=0,  # the same text makes the same file, byte for byte
        )
    assert isinstance(made, bytes)
    sys.stdout.buffer.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
