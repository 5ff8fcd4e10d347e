"""Every canned reply, read without a network: it ends as the right value or the right failure."""

import json
from collections.abc import Iterable
from typing import Any

import canned_errors
import canned_json
import canned_streams
import pytest
from canned_replies import NO_ERROR, CannedReply, TableChoice

from bos_llm.endpoints.sse import EventReader
from bos_llm.replies.schema import JsonSchema, UnusableReply
from bos_llm.replies.thinking import ThinkFilter
from bos_llm.replies.wire import (
    ForeignReply,
    Reply,
    ReplyBuilder,
    ReportedError,
    read_chunk,
    read_completion,
)

SCHEMA = JsonSchema.of(TableChoice)
WHOLE = [case for case in (*canned_json.CASES, *canned_errors.CASES) if case.status == 200]
STREAMS = canned_streams.CASES
_DONE = b"[DONE]"


def _named(cases: Iterable[CannedReply]) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in cases]


def _outcome(body: object) -> tuple[str, Any]:
    """What a whole reply comes to."""
    try:
        reply = read_completion(body)
    except ForeignReply:
        return "foreign", None
    except ReportedError as error:
        return "reported", error.status
    if reply.refusal or reply.finish_reason == "content_filter":
        return "refused", None
    try:
        return "value", SCHEMA.read_reply(reply)
    except UnusableReply:
        return "output", None


@pytest.mark.parametrize("case", _named(WHOLE))
def test_a_whole_reply_comes_to_what_is_expected(case: CannedReply) -> None:
    kind, found = _outcome(case.body)
    if case.expect.value is not None:
        assert (kind, found) == ("value", TableChoice.model_validate(case.expect.value))
    elif case.expect.reported != NO_ERROR:
        assert (kind, found) == ("reported", case.expect.reported)
    else:
        assert kind == case.expect.failure


class Streamed:
    """What a stream comes to, put together the way a client does."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.shown = ""
        self.failure = ""
        self.status: int | None = None
        self._events = EventReader(1_000_000)
        self._whole = ReplyBuilder(1_000_000)
        self._filter = ThinkFilter()
        self._done = False
        try:
            for piece in pieces:
                self._add(self._events.feed(piece))
            self._add(self._events.end())
            self.shown += self._filter.end()
        except ReportedError as error:
            self.failure, self.status = "reported", error.status
        except ForeignReply:
            self.failure = "foreign"
        else:
            self.failure = self._missing()

    def _add(self, events: list[bytes]) -> None:
        for event in events:
            self._done = self._done or event == _DONE
            if not self._done:
                self.shown += self._filter.feed(self._whole.add(read_chunk(json.loads(event))))

    def _missing(self) -> str:
        reply = self._whole.reply()
        if self._whole.is_blank:
            return "foreign"
        if reply.refusal or reply.finish_reason == "content_filter":
            return "refused"
        if reply.finish_reason is None and reply.tokens is None:
            return "unavailable"
        return "" if self.shown else "output"


def _check(case: CannedReply, streamed: Streamed) -> None:
    if case.expect.text is not None:
        assert (streamed.shown, streamed.failure) == (case.expect.text, "")
        return
    assert streamed.shown == case.expect.shown
    if case.expect.reported != NO_ERROR:
        assert (streamed.failure, streamed.status) == ("reported", case.expect.reported)
    else:
        assert streamed.failure == case.expect.failure


@pytest.mark.parametrize("case", _named(STREAMS))
def test_stream_reads_the_same_however_it_is_cut(case: CannedReply) -> None:
    data = case.stream or b""
    for at in range(len(data) + 1):
        _check(case, Streamed((data[:at], data[at:])))
    _check(case, Streamed(data[at : at + 1] for at in range(len(data))))


def test_a_stream_that_breaks_off_is_never_taken_for_a_whole_one() -> None:
    data = STREAMS[0].stream or b""
    ends = [at for at in range(len(data) + 1) if data[:at].endswith(b"\n\n")]
    failures = {}
    for at in ends:
        streamed = Streamed((data[:at],))
        assert "Hello world".startswith(streamed.shown)
        failures[at] = streamed.failure
    *broken, _finish, _usage_chunk, _done = ends
    assert [failures[at] for at in broken] == ["unavailable"] * 3
    assert [failures[at] for at in ends[3:]] == ["", "", ""]


def test_an_endpoint_s_own_words_do_not_show_in_an_error() -> None:
    with pytest.raises(ReportedError) as caught:
        read_completion({"error": {"message": "key sk-123 is wrong", "code": 401, "param": "key"}})
    error = caught.value
    assert "sk-123" not in str(error) + repr(error)
    assert (error.status, error.code, error.param) == (401, "401", "key")
    assert "sk-123" in error.text


def test_usage_is_read_by_any_name() -> None:
    usages = {
        "cached": {"prompt_tokens_details": {"cached_tokens": 4}},
        "DeepSeek": {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6},
        "Anthropic": {"cache_read_input_tokens": 4},
        "details null": {"prompt_tokens_details": None, "cache_read_input_tokens": 4},
    }
    for usage in usages.values():
        tokens = _usage({"prompt_tokens": 10, "completion_tokens": 5, **usage}).tokens
        assert (tokens.input_tokens, tokens.cached_tokens) == (10, 4)
    thought = {"completion_tokens_details": {"reasoning_tokens": 3}}
    tokens = _usage({"input_tokens": 10, "output_tokens": 5, **thought}).tokens
    assert (tokens.output_tokens, tokens.reasoning_tokens) == (5, 3)


@pytest.mark.parametrize("count", [-1, 2**53 + 1, 10**400, True, "7", float("nan"), None])
def test_counts_that_are_none_are_ignored(count: Any) -> None:
    assert _usage({"prompt_tokens": count, "completion_tokens": 5}).tokens is None
    details = {"cached_tokens": count}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details}
    tokens = _usage(usage).tokens
    assert tokens.cached_tokens == 0


def test_a_part_of_the_tokens_is_never_more_than_the_whole() -> None:
    tokens = _usage(
        {
            "prompt_tokens": 10,
            "completion_tokens": 5.0,
            "prompt_tokens_details": {"cached_tokens": 99},
            "completion_tokens_details": {"reasoning_tokens": 99},
        }
    ).tokens
    assert (tokens.cached_tokens, tokens.reasoning_tokens) == (10, 5)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("SAFETY", "content_filter"),
        ("tool_use", "tool_calls"),
        ("of its own", "of its own"),
        (["stop"], None),
    ],
)
def test_the_reason_of_the_end_has_one_name(said: Any, reason: str | None) -> None:
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": said}]}
    assert read_completion(body).finish_reason == reason


def test_thoughts_deeply_nested_are_left_and_do_no_harm() -> None:
    nested: Any = "x"
    for _ in range(500):
        nested = [{"text": nested}]
    body = {"choices": [{"message": {"content": "said", "reasoning": nested}}]}
    assert read_completion(body) == Reply(text="said")


def test_thoughts_and_text_of_a_stream_are_bounded() -> None:
    whole = ReplyBuilder(100)
    for _ in range(1000):
        whole.add(Reply(reasoning="hm, "))
    assert len(whole.reply().reasoning) == 100
    with pytest.raises(ForeignReply):
        whole.add(Reply(tool_arguments="x" * 101))


def test_tool_arguments_in_pieces_are_put_together() -> None:
    whole = ReplyBuilder(1000)
    for index, piece in ((0, '{"a"'), (1, "other"), (0, ": 1}")):
        calls = [{"index": index, "function": {"arguments": piece}}]
        whole.add(read_chunk({"choices": [{"delta": {"tool_calls": calls}}]}))
    assert whole.reply().tool_arguments == '{"a": 1}'


def _usage(usage: dict[str, Any]) -> Reply:
    return read_completion({"choices": [{"message": {"content": "x"}}], "usage": usage})
