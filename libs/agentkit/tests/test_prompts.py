from decimal import Decimal

import pytest

from bos_agentkit import format_dependencies, format_entities, prompt_sections
from bos_chassis.values import to_value, to_value_map


def test_clarifications_come_before_the_sections_of_a_prompt() -> None:
    parts = {"task": "t", "entities": "e", "dependencies": "d", "source_text": "s"}
    prompt = prompt_sections(**parts, instructions="i", settled="The user replied: UTC")
    assert prompt.startswith("Settled with the user:\nThe user replied: UTC\n\n### Task\nt")
    assert prompt_sections(**parts, instructions="i").startswith("### Task")


@pytest.mark.requirement("S-07")
def test_entities_are_pairs_or_none() -> None:
    entities = {"metric": to_value("revenue"), "limit": to_value(5), "names": to_value(["A", "B"])}
    assert format_entities(entities) == "limit=5, metric=revenue, names=A, B"
    assert format_entities({}) == "none"


@pytest.mark.requirement("S-07")
def test_dependency_data_is_truncated_to_500_characters() -> None:
    text = format_dependencies(
        {"sql_1": to_value_map({"total": Decimal("1.50")}), "rag_1": to_value_map({"t": "x" * 600})}
    )
    long, short = text.splitlines()
    assert short == '- **sql_1**: {"total": 1.50}'
    assert long.removeprefix("- **rag_1**: ") == '{"t": "' + "x" * 493
    assert format_dependencies({}) == "none"


@pytest.mark.requirement("S-07")
def test_the_prompt_has_its_sections_in_order() -> None:
    parts = {
        "task": "T",
        "entities": "none",
        "dependencies": "D",
        "source_text": "s" * 6000,
        "instructions": "I",
    }
    body = (
        "### Task\nT\n\n### Entities\nnone\n\n### Context from other agents\nD\n\n"
        f"### Source Text\n{'s' * 5000}\n\n### Instructions\nI"
    )
    assert prompt_sections(**parts) == body
    assert prompt_sections(**parts, profile="- Name: A") == f"About the user:\n- Name: A\n\n{body}"


def test_sections_of_a_tainted_step_are_marked_untrusted() -> None:
    prompt = prompt_sections(
        task="T",
        entities="",
        dependencies="D",
        source_text="S" * 6000,
        instructions="I",
        tainted=True,
    )
    assert f"### Source Text\n<untrusted>\n{'S' * 5000}\n</untrusted>\n" in prompt
    assert "### Context from other agents\n<untrusted>\nD\n</untrusted>\n" in prompt
