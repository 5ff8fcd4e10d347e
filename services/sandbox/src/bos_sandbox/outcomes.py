"""Outcomes of programs, in the same words for both tiers."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from bos.sandbox.v1 import ProgramStatus, RunProgramResponse

_FAILED = ProgramStatus.PROGRAM_STATUS_FAILED
_LIMIT = ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED
_MAX_MESSAGE_CHARS = 500

LIMITS = {
    "time": "the program took longer than its time limit",
    "memory": "the program needed more memory than its limit",
    "recursion": "the program called itself too deeply",
    "output": "the program printed more than its output limit",
    "result_size": "the result is larger than its limit; aggregate it further",
    "worker": "the program exhausted the worker it ran in",
    "disk": "the program wrote more to its folder than its limit",
    "files": "the program made more files than its limit",
    "open_files": "the program kept more files open than its limit",
}
"""What each limit says when it is exceeded."""

_RESULT_PROBLEMS = {
    "depth": "the result is nested more than 20 deep",
    "keys": "two keys of a dict in the result are equal as text",
    "type": "the result is not data but holds a {kind}",
}


def limit(name: str) -> RunProgramResponse:
    """The end at one of :data:`LIMITS`."""
    return ended(_LIMIT, name, LIMITS[name])


def result_problem(problem: str, kind: str) -> RunProgramResponse:
    """The end of a program whose result cannot be handed out."""
    if problem == "size":
        return limit("result_size")
    if problem == "digits":
        what = "the result holds a number of more than 4300 digits"
        return ended(_LIMIT, "result_size", what)
    what = _RESULT_PROBLEMS.get(problem, _RESULT_PROBLEMS["type"]).format(kind=kind)
    return ended(_FAILED, "ResultError", what)


def ended(status: ProgramStatus, kind: str, what: str) -> RunProgramResponse:
    """An end that is no success: ``kind`` is the exception, rule or limit, ``what`` a sentence."""
    if len(what) > _MAX_MESSAGE_CHARS:
        what = what[: _MAX_MESSAGE_CHARS - 1] + "…"
    return RunProgramResponse(
        status=status, error_type=kind, error_message=what, exit_code=1, duration=Duration()
    )
