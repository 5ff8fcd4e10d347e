"""Write the contracts that must not break: the image of today's schemas without comments.

Usage: ``release.py IMAGE TARGET``. ``make check`` compares every later state with the target.
"""

from __future__ import annotations

import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet


def release(image: Path, target: Path) -> None:
    """Copy ``image`` to ``target``, without source positions and comments."""
    files = FileDescriptorSet.FromString(image.read_bytes())
    for file in files.file:
        file.ClearField("source_code_info")
    target.write_bytes(files.SerializeToString(deterministic=True))


if __name__ == "__main__":
    release(Path(sys.argv[1]), Path(sys.argv[2]))
