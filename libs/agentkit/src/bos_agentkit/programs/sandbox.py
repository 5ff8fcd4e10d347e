"""Client of the sandbox service for model-written programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from google.protobuf.duration_pb2 import Duration

from bos.sandbox.v1 import (
    GetCapabilitiesRequest,
    Limits,
    ProgramFile,
    ProgramStatus,
    RunProgramRequest,
    RunProgramResponse,
    SandboxServiceStub,
    Tier,
)
from bos_agentkit.failures import AgentFailure
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.values import from_value, to_value
from bos_errors import AgentErrorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_chassis.channels import Channels

INPUT_TOO_LARGE = "InputTooLarge"
NO_PROCESS_TIER = "NoProcessTier"

_MAX_INPUT_BYTES = 6 * 1024 * 1024
"""Below the message limit of 8 MiB, with room for the program."""
_QUEUE_AND_KILL_S = 7.0
"""Time beyond the program's own: waiting for a worker, and killing an unresponsive program."""
_CAPABILITIES_S = 20.0
"""The sandbox answers once it has probed its tiers, a few seconds after its start."""


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a program that completed."""

    code: str
    result: Any
    stdout: str
    stderr: str = ""
    files: Sequence[ProgramFile] = ()
    file_problems: Sequence[str] = ()


class ProgramError(AgentFailure):
    """A program did not complete; subclasses give the cause. Never retryable."""

    kind: ClassVar[str]
    what: ClassVar[str]

    def __init__(self, code: str, reply: RunProgramResponse) -> None:
        self.stdout = reply.stdout
        self.error = f"{reply.error_type}: {reply.error_message}"
        # As in the last line of the interpreter's traceback.
        self.stderr = "\n".join(part for part in (reply.stderr.rstrip("\n"), self.error) if part)
        self.exit_code = reply.exit_code or 1
        self.files = list(reply.files)
        details = {
            "code": code,
            "rule": reply.error_type,
            "error": reply.error_message,
            "exit_code": self.exit_code,
        }
        super().__init__(self.kind, f"The program {self.what}. {_sentence(reply)}", details)


class ProgramFailed(ProgramError):
    """The program raised an exception or exited with a non-zero code."""

    kind = AgentErrorType.PROGRAM_FAILED
    what = "failed"


class ProgramViolation(ProgramError):
    """The program attempted a forbidden operation."""

    kind = AgentErrorType.SANDBOX_VIOLATION
    what = "tried something that is not allowed and was stopped"


class ProgramLimitExceeded(ProgramError):
    """The program exceeded its time, memory or output limit."""

    kind = AgentErrorType.PROGRAM_LIMIT_EXCEEDED
    what = "was stopped at a limit"


_ERRORS: dict[ProgramStatus, type[ProgramError]] = {
    ProgramStatus.PROGRAM_STATUS_FAILED: ProgramFailed,
    ProgramStatus.PROGRAM_STATUS_VIOLATION: ProgramViolation,
    ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED: ProgramLimitExceeded,
}


class Sandbox:
    """Client of the sandbox service.

    Args:
        channels: Shared by the process.
        target: Address of the sandbox.
        program_timeout_s: Time limit of one program.
        tier: Isolation tier of programs; unspecified: the sandbox's policy decides.
        return_files: Whether to return the files that programs write.
    """

    def __init__(
        self,
        channels: Channels,
        target: str,
        *,
        program_timeout_s: float,
        tier: Tier = Tier.TIER_UNSPECIFIED,
        return_files: bool = False,
    ) -> None:
        self._stub = SandboxServiceStub(channels.get(target))
        self._program_timeout_s = program_timeout_s
        self._tier = tier
        self._return_files = return_files

    async def require_process_tier(self) -> None:
        """Check that the sandbox has the process tier, before a program is proposed for approval.

        Raises:
            AgentFailure: the sandbox has no process tier, which full Python requires.
            BosError: the sandbox is unreachable.
        """
        with translate_rpc_errors():
            reply = await self._stub.GetCapabilities(
                GetCapabilitiesRequest(), timeout=_CAPABILITIES_S
            )
        reason = "this sandbox has none"
        for tier in reply.tiers:
            if tier.tier == Tier.TIER_PROCESS:
                if tier.available:
                    return
                reason = tier.reason
        raise AgentFailure(
            NO_PROCESS_TIER,
            f"Full Python needs the sandbox's process tier, and it is off: {reason}. "
            "Small computations work without it.",
        )

    async def run(self, code: str, inputs: Mapping[str, Any], *, remaining_s: float) -> Run:
        """Run ``code`` and return its result.

        Args:
            code: The program.
            inputs: Its variables.
            remaining_s: Time left for the step.

        Raises:
            ProgramError: the program did not complete.
            AgentFailure: the inputs are too large.
            BosError: the sandbox is unreachable, busy or too slow.
        """
        timeout = Duration()
        timeout.FromNanoseconds(int(min(self._program_timeout_s, remaining_s) * 1e9))
        request = RunProgramRequest(
            code=code,
            inputs={name: to_value(value) for name, value in inputs.items()},
            tier=self._tier,
            limits=Limits(timeout=timeout),
            return_files=self._return_files,
        )
        if request.ByteSize() > _MAX_INPUT_BYTES:
            raise AgentFailure(
                INPUT_TOO_LARGE,
                f"The data for the program have {request.ByteSize()} bytes, and "
                f"{_MAX_INPUT_BYTES} can be handed over. Aggregate or limit them first.",
                {name: to_value(value).ByteSize() for name, value in inputs.items()},
            )
        with translate_rpc_errors():
            reply = await self._stub.RunProgram(
                request, timeout=self._program_timeout_s + _QUEUE_AND_KILL_S
            )
        if reply.status != ProgramStatus.PROGRAM_STATUS_SUCCEEDED:
            raise _ERRORS.get(reply.status, ProgramFailed)(code, reply)
        return Run(
            code,
            from_value(reply.result),
            reply.stdout,
            reply.stderr,
            reply.files,
            reply.file_problems,
        )


def _sentence(reply: RunProgramResponse) -> str:
    """The sandbox's explanation as a full sentence."""
    text = reply.error_message.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
