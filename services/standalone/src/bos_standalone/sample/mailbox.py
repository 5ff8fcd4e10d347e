"""Connection of the local user to the sample mailbox, made anew at each start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos_client.user_connections import ConnectionClient
from bos_errors import BosError

if TYPE_CHECKING:
    from bos_chassis.telemetry import Telemetry
    from bos_demo.mailbox.servers import SampleMailbox

_KIND: Final = "mail.imap"
_LABEL: Final = "Sample mailbox of the demo"
_CALL_TIMEOUT_S: Final = 10.0


async def connect_sample(
    target: str, api_key: str, mailbox: SampleMailbox | None, telemetry: Telemetry
) -> bool:
    """Connect the local user to the sample mailbox; whether it is connected.

    A mailbox that the user has connected stays as it is. Without a sample mailbox, the connection
    that an earlier start made is deleted: its servers are gone.

    Args:
        target: Address of identity.
        api_key: API key of the local user.
        mailbox: The running servers; None without.
        telemetry: For failures, which are logged: nothing else depends on this mailbox.
    """
    log = telemetry.logger("bos.standalone")
    try:
        async with ConnectionClient(target, api_key=api_key, timeout_s=_CALL_TIMEOUT_S) as client:
            found = [each for each in await client.connections() if each.kind.startswith("mail.")]
            ours = [each for each in found if each.label == _LABEL]
            if mailbox is None or len(ours) != len(found):
                for each in ours:
                    await client.disconnect(each.kind)
                return False
            await client.connect(_KIND, mailbox.password, mailbox.connection, _LABEL)
    except BosError as error:
        log.warning("sample mailbox not connected", error=type(error).__name__)
        return False
    return True
