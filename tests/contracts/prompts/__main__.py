"""`make prompts`: ask every demo question, and write figures and prompts anew."""

import asyncio
import tempfile
from pathlib import Path

from .asking import MODES, ask_all
from .files import GOLDEN, MARKDOWN, Measured, write


def main() -> None:
    measured: Measured = {}
    for mode in MODES:
        with tempfile.TemporaryDirectory() as folder:
            measured[mode] = asyncio.run(ask_all(mode, Path(folder)))
    write(measured)
    here = Path.cwd()
    for path in (MARKDOWN, GOLDEN):
        print(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    main()
