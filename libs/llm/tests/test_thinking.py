"""Thoughts and end marks are left out, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos_llm.replies.thinking import ThinkFilter, shown_text, without_thinking

_PIECES = st.lists(
    st.sampled_from(
        (
            *("<think>", "</think>", "<thinking>", "</thinking>", "<THINK>", "</Think>"),
            *("<|im_end|>", "</s>", "<end_of_turn>", "<|im_", "</", "<", "[THINK]", "[/THINK]"),
            *("<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>"),
            *(" ", "\n", "a", "Hello", "{", "ſ", "İ", "😀"),
        )
    ),
    max_size=12,
)


def _in_pieces(text: str, cuts: list[int]) -> str:
    filtered = ThinkFilter()
    ends = sorted(min(cut, len(text)) for cut in cuts)
    starts = [0, *ends]
    shown = [
        filtered.feed(text[start:end])
        for start, end in zip(starts, [*ends, len(text)], strict=True)
    ]
    return "".join(shown) + filtered.end()


@given(_PIECES, st.lists(st.integers(0, 150), max_size=6))
def test_the_same_is_shown_however_a_text_is_cut(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    assert _in_pieces(text, cuts) == shown_text(text)
    assert _in_pieces(text, list(range(len(text)))) == shown_text(text)


@given(st.text())
def test_text_without_tags_and_marks_stays(text: str) -> None:
    text = text.replace("<", "(").replace("[", "(")
    assert shown_text(text) == without_thinking(text) == text.lstrip()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>a</think>b", "b"),
        ("\n <Think>a</THINK>\n\nb", "b"),
        ("<think>a</think><reasoning>b</reasoning> c", "c"),
        ("[THINK]a[/THINK]b", "b"),
        ("<think>a", ""),
        ("<think>a</thinking>b</think>c", "c"),
        ("b <think>a</think>", "b <think>a</think>"),
        ("<thi", "<thi"),
        ("a <|im_end|>", "a "),
        ("a</s> <|eot_id|>\n", "a"),
        ("a<|im_end|>b", "a<|im_end|>b"),
        ("a<|im_end|> <", "a<|im_end|> <"),
        ("a<｜end▁of▁sentence｜>", "a"),
        ("<|im_end|>", ""),
    ],
)
def test_only_what_is_not_for_the_reader_is_left_out(text: str, shown: str) -> None:
    assert shown_text(text) == shown
    assert without_thinking(text) == shown


def test_lone_closing_tag_ends_thoughts_at_the_end_of_a_line() -> None:
    assert without_thinking("I think\n</think>\n\nb") == "b"
    assert without_thinking("I think</think>\n<think>more</think>b") == "b"
    said = "The tag </think> ends thoughts."
    assert without_thinking(said) == said
    # A stream has shown them by then.
    assert shown_text("I think\n</think>\n\nb") == "I think\n</think>\n\nb"


def test_filter_that_begins_within_thoughts_waits_for_their_end() -> None:
    filtered = ThinkFilter(opened=True)
    assert filtered.feed("hm </thi") + filtered.feed("nk>\nb") + filtered.end() == "b"
    assert filtered.hidden
    unclosed = ThinkFilter(opened=True)
    assert unclosed.feed("hm") + unclosed.end() == ""


def test_filter_reports_whether_it_has_hidden_thoughts() -> None:
    filtered = ThinkFilter()
    filtered.feed("b")
    assert not filtered.hidden
    filtered = ThinkFilter()
    filtered.feed("<think>")
    assert filtered.hidden


def test_what_is_hidden_is_not_kept() -> None:
    thoughts, marks = ThinkFilter(), ThinkFilter()
    thoughts.feed("<think>")
    marks.feed("a")
    for _ in range(1000):
        assert thoughts.feed("hm, no, " * 10) == ""
        assert marks.feed("<|im_end|> \n") == ""
    assert _kept(thoughts) < 50
    assert _kept(marks) < 1100
    assert thoughts.feed("</think>b") == "b"
    # So many of them are no part of any answer, even if something follows.
    assert marks.feed("b") == "b"


def _kept(filtered: ThinkFilter) -> int:
    return sum(len(value) for value in vars(filtered).values() if isinstance(value, str))
