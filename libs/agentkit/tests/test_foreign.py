from decimal import Decimal

from bos.agent.v1 import AgentInput
from bos_agentkit import AgentTask
from bos_agentkit.foreign import ContentReader, is_plain, plain_text
from bos_chassis.values import table_rows
from bos_testkit.hostile import hostile_texts


def reader(**bounds: int) -> ContentReader:
    return ContentReader(
        AgentTask(AgentInput(task="x")), **{"max_chars": 1_000, "max_rows": 10, **bounds}, stem="it"
    )


def test_hostile_texts_become_one_plain_bounded_line() -> None:
    lines = {text.what: plain_text(text.text, 200) for text in hostile_texts()}
    wrong = [
        (what, line)
        for what, line in lines.items()
        if len(line) > 200
        or line != line.strip()
        or not line.isprintable()
        or set("<>`|*#[]{}") & set(line)
    ]
    assert wrong == []


def test_plain_text_keeps_words_and_drops_markup() -> None:
    assert plain_text("Reads <b>one</b> note.\n\n# Now", 100) == "Reads one note. Now"
    assert plain_text("äöü 中文 ₹", 100) == "äöü 中文 ₹"
    assert plain_text("abcdef", 4) == "abc…"
    assert plain_text(None, 10) == ""


def test_value_is_shown_as_it_is_only_if_all_of_it_is_seen() -> None:
    assert is_plain("a b", 3)
    assert not is_plain("a b", 2)
    assert not is_plain("", 3)
    assert not is_plain("a\u200b", 3)


def test_list_of_objects_is_a_table_of_all_their_names() -> None:
    reading = reader()
    reading.add_text('{"items": [{"a": 1}, {"b": 2.50}]}')
    found = reading.content()
    rows = [{"a": 1, "b": None}, {"a": None, "b": Decimal("2.50")}]
    assert table_rows(found.table) == rows
    assert found.data == {"truncated": False}


def test_text_and_rows_beyond_the_limits_are_truncated() -> None:
    reading = reader(max_chars=4)
    reading.add_text("abcdef")
    reading.add_text("ghi")
    assert reading.content().data == {"truncated": True, "text": "abcd"}
    found = reader(max_rows=2).content([{"n": n} for n in range(3)])
    assert found.rows == [{"n": 0}, {"n": 1}]
    assert found.truncated
    assert not reader(max_rows=3).content([{"n": n} for n in range(3)]).truncated


def test_files_have_names_of_their_own_without_folders() -> None:
    reading = reader()
    for uri in ("a/b/plan.txt", "plan.txt", "", "../.."):
        reading.add_file(uri, "text/plain", b"x")
    assert reading.files == ["plan.txt", "2-plan.txt", "it-3.txt", "it-4.txt"]
    reading.add_file("large", "no type", b"x" * 5_000_000)
    assert len(reading.files) == 4
    assert reading.truncated
