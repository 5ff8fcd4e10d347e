"""Programs: what makes one fit to be proposed, what it reads, and the sandbox that runs it."""

from __future__ import annotations

import ast
import hashlib
import unicodedata
import warnings
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
from bos_agentkit import SANDBOX_VIOLATION, AgentFailure
from bos_agentkit.actions import canonical_form
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.values import from_value, to_value, to_value_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_chassis.channels import Channels

INPUT_TOO_LARGE = "InputTooLarge"
NO_PROCESS_TIER = "NoProcessTier"

_MAX_INPUT_BYTES = 6 * 1024 * 1024
"""Below the 8 MiB that one message may have, with room for the program."""
_QUEUE_AND_KILL_S = 7.0
"""Beside its own time, a program may wait for a worker, and a stubborn one for its end."""
_CAPABILITIES_S = 20.0
"""The sandbox says what it can do once it knows, which takes a few seconds after its start."""

_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
_TURNS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})

FRAME_HELPER = '''\
def frame(rows):
    """Rows as a pandas DataFrame; exact decimals become floats."""
    import pandas as pd
    from decimal import Decimal

    table = pd.DataFrame(rows)
    for name in table.columns:
        if any(isinstance(cell, Decimal) for cell in table[name]):
            table[name] = table[name].astype(float)
    return table


'''
"""Stands at the head of programs that call it: what a person approves is the whole program."""


@dataclass(frozen=True, slots=True)
class Run:
    """One program that ran to its end."""

    result: Any
    stdout: str
    stderr: str
    files: Sequence[ProgramFile] = ()
    file_problems: Sequence[str] = ()


class ProgramError(AgentFailure):
    """A program did not come to its end; the subclasses say why. Not worth a retry (SPEC Q-06)."""

    kind: ClassVar[str]
    what: ClassVar[str]

    def __init__(self, reply: RunProgramResponse) -> None:
        self.stdout = reply.stdout
        error = f"{reply.error_type}: {reply.error_message}"
        # As the interpreter itself would have said it last.
        self.stderr = "\n".join(part for part in (reply.stderr.rstrip("\n"), error) if part)
        self.exit_code = reply.exit_code or 1
        self.files = list(reply.files)
        details = {
            "rule": reply.error_type,
            "error": reply.error_message,
            "exit_code": self.exit_code,
        }
        super().__init__(self.kind, f"The program {self.what}. {_sentence(reply)}", details)


class ProgramFailed(ProgramError):
    """It raised an exception or left with another exit code than 0 (SPEC F-07)."""

    kind = "ProgramFailed"
    what = "failed"


class ProgramViolation(ProgramError):
    """It tried something that is not allowed (SPEC F-05)."""

    kind = SANDBOX_VIOLATION
    what = "tried something that is not allowed and was stopped"


class ProgramLimitExceeded(ProgramError):
    """It took more time, memory or output than allowed."""

    kind = "ProgramLimitExceeded"
    what = "was stopped at a limit"


_ERRORS: dict[ProgramStatus, type[ProgramError]] = {
    ProgramStatus.PROGRAM_STATUS_FAILED: ProgramFailed,
    ProgramStatus.PROGRAM_STATUS_VIOLATION: ProgramViolation,
    ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED: ProgramLimitExceeded,
}


def program_problem(code: str, max_bytes: int) -> str:
    """Why nobody should be asked about ``code``, in a sentence; empty if it parses."""
    if len(code.encode("utf-8", "replace")) > max_bytes:
        return f"The program has more than {max_bytes} bytes."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its escapes, which it may write as it likes
            ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {type(error).__name__}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The program cannot be read: {type(error).__name__}."
    return _misleading(code)


def _misleading(code: str) -> str:
    """What people do not see as Python reads it, in a sentence; empty if nothing.

    A carriage return ends a comment for Python and vanishes in a terminal; marks that turn the
    direction of writing have the code shown in another order than the one that runs.
    """
    for number, line in enumerate(code.split("\n"), 1):
        for character in line.replace("\t", ""):
            hidden = unicodedata.category(character) in _CONTROLS
            if hidden or unicodedata.bidirectional(character) in _TURNS:
                return (
                    f"line {number} holds U+{ord(character):04X}, which is not shown as it is "
                    "read; in a text write it as an escape."
                )
    return ""


def with_helper(code: str) -> str:
    """``code``, with the helper at its head if it calls it and has none of its own."""
    if "frame(" in code and "def frame(" not in code:
        return FRAME_HELPER + code
    return code


def input_digests(values: Mapping[str, Any]) -> dict[str, str]:
    """The digest of each value: what is approved is the program over exactly these data."""
    return {
        name: hashlib.sha256(
            canonical_form("input", to_value_map({"value": value})).encode()
        ).hexdigest()
        for name, value in values.items()
    }


class Sandbox:
    """Client of the sandbox service."""

    def __init__(self, channels: Channels, target: str, *, program_timeout_s: float) -> None:
        self._stub = SandboxServiceStub(channels.get(target))
        self._program_timeout_s = program_timeout_s

    async def require_process_tier(self) -> None:
        """Find out that programs can be run, before anybody is asked about one.

        Raises:
            AgentFailure: the sandbox has no process tier; there is no other way for full Python.
            BosError: the sandbox is not reachable.
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
        """Run ``code`` to its end.

        Args:
            code: The program.
            inputs: Its variables.
            remaining_s: Time left for the step.

        Raises:
            ProgramError: it did not come to its end.
            AgentFailure: the inputs are too large.
            BosError: the sandbox is not reachable, busy, or did not answer in time.
        """
        timeout = Duration()
        timeout.FromNanoseconds(int(min(self._program_timeout_s, remaining_s) * 1e9))
        request = RunProgramRequest(
            code=code,
            inputs={name: to_value(value) for name, value in inputs.items()},
            tier=Tier.TIER_PROCESS,
            limits=Limits(timeout=timeout),
            return_files=True,
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
            raise _ERRORS.get(reply.status, ProgramFailed)(reply)
        return Run(
            from_value(reply.result), reply.stdout, reply.stderr, reply.files, reply.file_problems
        )


def _sentence(reply: RunProgramResponse) -> str:
    """The sandbox's explanation as a sentence of its own."""
    text = reply.error_message.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
