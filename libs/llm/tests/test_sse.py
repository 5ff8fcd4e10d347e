"""Events come out whole, however the network cuts them."""

import pytest

from bos_llm.endpoints.sse import EventReader

STREAM = b': hello\r\n\r\nevent: x\ndata: {"a": 1}\n\ndata:two\ndata: lines\r\n\r\ndata: [DONE]\n\n'
EVENTS = [b'{"a": 1}', b"two\nlines", b"[DONE]"]


@pytest.mark.parametrize("size", [1, 2, 7, len(STREAM)])
def test_events_are_the_same_in_pieces_of_any_size(size: int) -> None:
    reader = EventReader(100)
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in reader.feed(piece)] == EVENTS


def test_an_event_that_has_not_ended_is_kept_back() -> None:
    reader = EventReader(100)
    assert reader.feed(b"data: one\n") == []
    assert reader.feed(b"\n") == [b"one"]


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 101, b"data: xxxx\n" * 26])
def test_an_event_without_an_end_is_refused(piece: bytes) -> None:
    with pytest.raises(ValueError, match="without an end"):
        EventReader(100).feed(piece)


def test_events_may_be_as_long_as_limit_and_as_many_as_they_like() -> None:
    reader = EventReader(100)
    assert reader.feed((b"data: " + b"x" * 90 + b"\n\n") * 50) == [b"x" * 90] * 50


@pytest.mark.parametrize(
    ("stream", "last"),
    [
        (b'data: {"a": 1}\n', [b'{"a": 1}']),
        (b"data: 1\r\ndata: 2", [b"1\n2"]),
        (b'data: {"a": 1}\n\n', []),
        (b"data: 1\ndata: {", [b"1"]),
        (b"<html>", []),
        (b"", []),
    ],
)
def test_event_without_blank_line_after_it_counts_at_end(stream: bytes, last: list[bytes]) -> None:
    reader = EventReader(100)
    reader.feed(stream)
    assert reader.end() == last
    assert reader.end() == []


def test_json_instead_of_a_stream_is_one_event_at_its_end() -> None:
    body = b' \n{"a":\n\n 1}\n'
    for at in range(len(body)):
        reader = EventReader(100)
        assert reader.feed(body[:at]) + reader.feed(body[at:]) == []
        assert (reader.end(), reader.end()) == ([b'{"a":\n\n 1}'], [])


def test_json_without_an_end_is_refused() -> None:
    reader = EventReader(100)
    with pytest.raises(ValueError, match="without an end"):
        reader.feed(b"[" + b"1," * 50)
