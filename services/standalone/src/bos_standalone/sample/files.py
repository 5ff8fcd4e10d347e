"""Upload of the sample company's files to the local user's workspace, once per data folder."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from bos_client.workspace import WorkspaceClient
from bos_demo.uploads import sample_uploads
from bos_errors import BosError

if TYPE_CHECKING:
    from pathlib import Path

    from bos_chassis.telemetry import Telemetry

_MARKER: Final = "demo-files"
_LONGEST_S: Final = 30.0


async def upload_sample(target: str, api_key: str, folder: Path, telemetry: Telemetry) -> bool:
    """Upload the files; whether they are there, or were until the user deleted them.

    Args:
        target: Address of the files service.
        api_key: API key of the local user, who owns the files.
        folder: Data folder, which remembers that they are uploaded: a user may delete them.
        telemetry: For failures, which are logged: nothing else depends on these files.
    """
    log = telemetry.logger("bos.standalone")
    marker = folder / _MARKER
    try:
        files = sample_uploads()
        version = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        if marker.exists() and marker.read_text(encoding="ascii").strip() == version:
            return True
        async with (
            asyncio.timeout(_LONGEST_S),
            WorkspaceClient(target, api_key=api_key) as workspace,
        ):
            for name, content in files.items():
                await workspace.upload(name, content)
        marker.write_text(version + "\n", encoding="ascii")
    except (BosError, OSError, UnicodeDecodeError) as error:  # TimeoutError is an OSError
        log.warning("sample files not uploaded", error=type(error).__name__)
        return False
    return True
