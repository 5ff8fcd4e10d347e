"""Program that rewrites the segments of a shard, so that no file holds what was deleted.

A process of its own: the engine holds Python's global lock while it rewrites, 1.3 s at 5,000
chunks, which would stop every other call of the service. It inherits the lock of the index's
folder, so that a service started anew does not open a shard that is still being rewritten.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import qdrant_edge


class RewriteFailed(Exception):
    """The shard was not rewritten, or not to the end; it may be tried again."""


def rewrite(path: Path, lock: int, timeout_s: float) -> None:
    """Rewrite the closed shard at ``path``; blocks without holding Python's global lock.

    Args:
        path: The shard's folder.
        lock: Descriptor of the lock that its owner holds.
        timeout_s: Longest time; the program is ended then.

    Raises:
        RewriteFailed: it took too long, or the program failed.
    """
    command = [sys.executable, "-m", __name__, str(path)]
    try:
        subprocess.run(  # noqa: S603
            command,
            check=True,
            pass_fds=(lock,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RewriteFailed(type(error).__name__) from error


def clear_leftovers(path: Path) -> None:
    """Remove half-written segments of the closed shard at ``path``; the engine leaves them.

    They hold copies of chunks that may be deleted later.
    """
    for left in (path / "temp_segments").glob("*"):
        shutil.rmtree(left)


def main(path: str) -> None:
    """Load, rewrite, write, close."""
    clear_leftovers(Path(path))
    shard = qdrant_edge.EdgeShard.load(path)
    shard.optimize()
    shard.flush()
    shard.close()


if __name__ == "__main__":
    main(sys.argv[1])
