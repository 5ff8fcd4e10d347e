"""`make prompts`: ask every demo question, and write figures and prompts anew."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from .asking import ask_both
from .files import GOLDEN, MARKDOWN, write


def main() -> None:
    with ExitStack() as stack:
        write(ask_both(lambda: Path(stack.enter_context(tempfile.TemporaryDirectory()))))
    here = Path.cwd()
    for path in (MARKDOWN, GOLDEN):
        print(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    main()
