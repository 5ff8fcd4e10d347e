"""Keys, invitations and connections of the isolation suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.identity.v1 import (
    AdministrationServiceStub,
    ApiKeyServiceStub,
    ConnectionServiceStub,
    CreateApiKeyRequest,
    CreateInvitationRequest,
    PutConnectionRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .isolation_harness import IsolationHarness, Person


async def api_key(
    harness: IsolationHarness, person: Person, scopes: Iterable[str]
) -> tuple[str, str]:
    """A key of a user with these scopes: its id, and the key itself."""
    credential = (("authorization", f"Bearer {person.access_token}"),)
    made = await ApiKeyServiceStub(harness.channels["bos.identity.v1"]).CreateApiKey(
        CreateApiKeyRequest(name="a program", scopes=scopes), metadata=credential
    )
    return made.api_key.key_id, made.secret


async def give_credentials(harness: IsolationHarness, planted: str) -> None:
    """Ada's key, invitation and connections."""
    ada = harness.people["ada"]
    harness.key_id, _ = await api_key(harness, ada, ["account"])
    for kind in ("mail.gmail", "mail.imap"):
        await ConnectionServiceStub(harness.channels["bos.identity.v1"]).PutConnection(
            PutConnectionRequest(kind=kind, label=planted, secret=f"password of the {planted}"),
            metadata=(("authorization", f"Bearer {ada.access_token}"),),
        )
    invited = await AdministrationServiceStub(harness.channels["bos.identity.v1"]).CreateInvitation(
        CreateInvitationRequest(), metadata=(("authorization", f"Bearer {ada.access_token}"),)
    )
    harness.invitation_id = invited.invitation.invitation_id
