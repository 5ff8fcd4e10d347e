"""Links of tainted runs: only addresses from their inputs stay. Pure.

The content of others may have a model put what it has read into an address. Given are the question
with its context and conversation, and sources, tables and data of results; not their answers, which
models write as well, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.struct_pb2 import Value as JsonValue

from bos.agent.v1 import AgentResult
from bos.common.v1 import Value
from bos.composer.v1 import ComposerOutput
from bos.runlog.v1 import RunAccepted
from bos_chassis.links import LinkCheck, checked_links, may_hold_links
from bos_gateway.core.run_state import RunState
from bos_gateway.core.taint import outcome_is_tainted


def check_result(state: RunState, result: AgentResult) -> None:
    """Take links that were not given out of a tainted result's words."""
    if not result.tainted:
        return
    # Agents hand their answer on as data, too; as long as a copy stands there, its links are given.
    copies = [value for value in _data(result) if value.string_value == result.answer]
    for value in copies:
        value.string_value = ""
    _check(state, result, (result,))
    # What stays in data is given to all that comes after.
    for value in copies:
        value.string_value = result.answer


def check_output(state: RunState, output: ComposerOutput) -> None:
    """The same in a composed answer, if the run's outcome is tainted."""
    if outcome_is_tainted(state):
        _check(state, output)


def stream_check(state: RunState) -> LinkCheck | None:
    """The same for an answer while it is written; None where nothing is tainted."""
    return LinkCheck(_given(state)) if outcome_is_tainted(state) else None


def _check(
    state: RunState, said: AgentResult | ComposerOutput, more: Iterable[AgentResult] = ()
) -> None:
    said.answer = _checked(state, said.answer, more)
    for texts in (said.highlights, said.followups):
        texts[:] = [_checked(state, text, more) for text in texts]
    if isinstance(said, ComposerOutput):
        for section in said.sections:
            section.heading = _checked(state, section.heading, more)
            section.finding = _checked(state, section.finding, more)
    else:
        said.caveats[:] = [_checked(state, text, more) for text in said.caveats]


def _checked(state: RunState, text: str, more: Iterable[AgentResult]) -> str:
    return checked_links(text, _given(state, more)) if may_hold_links(text) else text


def _given(state: RunState, more: Iterable[AgentResult] = ()) -> Iterator[str]:
    yield from _asked(state.request)
    for step in state.result_steps:
        if step.result is not None:
            yield from _found(step.result)
    for result in more:
        yield from _found(result)


def _asked(accepted: RunAccepted) -> Iterator[str]:
    request = accepted.request
    yield from (request.question, accepted.original_question, request.system_prompt)
    yield from (message.content for message in accepted.conversation_history)
    yield from (turn.reply for turn in accepted.clarifications)
    waiting: list[JsonValue] = list(request.context.fields.values())
    while waiting:
        value = waiting.pop()
        yield value.string_value
        waiting += [*value.list_value.values, *value.struct_value.fields.values()]


def _found(result: AgentResult) -> Iterator[str]:
    for source in result.sources:
        yield from (source.uri, source.title, source.excerpt)
    for value in _texts([cell for row in result.table.rows for cell in row.values]):
        yield value.string_value
    for value in _data(result):
        if value.string_value != result.answer:  # agents hand it on as data, too
            yield value.string_value


def _data(result: AgentResult) -> Iterator[Value]:
    """Texts of a result's data."""
    return _texts([*result.data.fields.values(), *result.partial_data.fields.values()])


def _texts(waiting: list[Value]) -> Iterator[Value]:
    while waiting:
        value = waiting.pop()
        kind = value.WhichOneof("kind")
        if kind == "string_value":
            yield value
        elif kind == "list_value":
            waiting += value.list_value.values
        elif kind == "map_value":
            waiting += value.map_value.fields.values()
