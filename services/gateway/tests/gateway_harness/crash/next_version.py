"""The version after this one, built from it: one more kind of event, one schema version, one table.

What it adds is as small as can be, so that all else it does is what this version does.
"""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import bos_gateway
from bos.runlog.v1 import LogEvent

_ROOT = Path(__file__).parents[5]
_PROTO = "bos/runlog/v1/log_event.proto"
_FIELD = 999
_VERSION = re.compile(r"^SCHEMA_VERSION(: .*)? = .*$", re.MULTILINE)
_MIGRATION = """-- migrate:up
ALTER TABLE runs ADD COLUMN note text;
CREATE TABLE notes (run_id uuid PRIMARY KEY, note text NOT NULL);
ALTER TABLE notes ENABLE ROW LEVEL SECURITY;

-- migrate:down
DROP TABLE notes;
ALTER TABLE runs DROP COLUMN note;
"""


def noted() -> bytes:
    """The serialised event that only the next version knows."""
    tag, key = _FIELD << 3 | 2, bytearray()
    while tag > 0x7F:
        key.append(tag & 0x7F | 0x80)
        tag >>= 7
    event = bytes([*key, tag, 0])
    assert LogEvent.FromString(event).WhichOneof("event") is None
    return event


def build(folder: Path) -> Sequence[str]:
    """Write the next version into a folder; returns what Python runs to start its gateway."""
    source = folder / "src"
    package = source / "bos_gateway"
    shutil.copytree(Path(bos_gateway.__file__).parent, package)
    versions = [path for path in package.rglob("*.py") if _VERSION.search(path.read_text())]
    assert len(versions) == 1, versions
    _replace(versions[0], _VERSION, "SCHEMA_VERSION = 1000")
    _replace(
        package / "core" / "fold.py",
        re.compile(r"^(_APPLY.* = \{)$", re.MULTILINE),
        r'\1\n    "noted": lambda state, event: None,',
    )
    (package / "migrations" / "29990101000001_notes.sql").write_text(_MIGRATION)
    _generate(folder / "protos", source)
    start = f"import runpy, sys; sys.path.insert(0, {str(source)!r}); "
    return "-c", start + "runpy.run_module('bos_gateway', run_name='__main__')"


def _replace(path: Path, what: re.Pattern[str], by: str) -> None:
    text, times = what.subn(by, path.read_text())
    assert times == 1, path
    path.write_text(text)


def _generate(protos: Path, source: Path) -> None:
    """The one schema that changes; all others are those of this version."""
    shutil.copytree(_ROOT / "protos" / "bos", protos / "bos")
    proto = protos / _PROTO
    _replace(
        proto,
        re.compile(r"^  oneof event \{$", re.MULTILINE),
        f"  oneof event {{\n    // A note.\n    Noted noted = {_FIELD};",
    )
    proto.write_text(proto.read_text() + "\n// Noted is empty.\nmessage Noted {}\n")
    sys.path.insert(0, str(_ROOT / "libs" / "protos"))
    try:
        import generate  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(_ROOT / "libs" / "protos"))
    validate = protos / "validate.binpb"
    generate.write_validate_descriptor(validate)
    generate.protoc(
        *generate.include_paths(protos),
        f"--descriptor_set_in={validate}",
        f"--python_out={source}",
        _PROTO,
    )
    generate.write_package_inits(source)
