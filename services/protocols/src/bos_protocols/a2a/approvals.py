"""What a task waits for, and decisions about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from a2a.utils.errors import UnsupportedOperationError

from bos.gateway.v1 import ApprovalStatus
from bos_conversation import approval_text
from bos_protocols.a2a.failures import invalid

if TYPE_CHECKING:
    from bos.gateway.v1 import Approval, Run
    from bos_client import BosClient
    from bos_protocols.a2a.messages import NamedDecision

_PAGE = 200
_MAX_PAGES = 20


async def approvals_of(
    bos: BosClient, run: Run, status: ApprovalStatus = ApprovalStatus.APPROVAL_STATUS_UNSPECIFIED
) -> list[Approval]:
    """The requests of a run, oldest first, as lists show them."""
    found: list[Approval] = []
    token = ""
    for _ in range(_MAX_PAGES):
        page = await bos.list_approvals(page_size=_PAGE, page_token=token, status=status)
        found += [one for one in page.approvals if one.run_id == run.run_id]
        token = page.next_page_token
        # Newest first: a run has none that are older than itself.
        if not token or _age(page.approvals[-1]) < _start(run):
            break
    return found[::-1]


async def waits_for(bos: BosClient, run: Run) -> Approval | None:
    """The first request that a run waits for, with all that is to be shown of it."""
    if run.HasField("response"):
        return None
    pending = await approvals_of(bos, run, ApprovalStatus.APPROVAL_STATUS_PENDING)
    return await bos.get_approval(pending[0].approval_id) if pending else None


async def decide(bos: BosClient, run: Run, named: NamedDecision) -> None:
    """Decide what the message is about.

    A message that does not name it decides the run's only request: where there were more, it is
    unknown which of them its sender was shown.

    Raises:
        InvalidParamsError: it has to name the request.
        UnsupportedOperationError: the run waits for nothing.
    """
    listed = await approvals_of(bos, run)
    if not listed:
        raise UnsupportedOperationError("The task is under way and waits for no message.")
    if named.approval_id:
        listed = [one for one in listed if one.approval_id == named.approval_id]
    if len(listed) != 1:
        raise invalid("message.parts", "must name the approval that it decides, as in: yes ID")
    approval = await bos.get_approval(listed[0].approval_id)
    decision = named.decision
    if not decision.approved:
        await bos.deny(approval.approval_id)
        return
    approval_text(approval)  # what cannot be shown whole is not approved here
    await bos.approve(approval.approval_id, decision.instructions)


def _age(approval: Approval) -> int:
    return approval.create_time.ToNanoseconds()


def _start(run: Run) -> int:
    return run.create_time.ToNanoseconds()
