"""Check of the numbers that the model wrote: those that nothing it was shown holds are named. Pure.

The answer is streamed while it is written, so a number is not taken out of it: a note behind the
answer names the numbers that stand in no result, question, date or other text of the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from bos.agent.v1 import AgentResult
from bos.common.v1 import Value
from bos_composer.numbers import plain
from bos_composer.tables import is_number
from bos_llm.numbers.check import KnownNumbers
from bos_llm.numbers.reading import read_numbers

_MAX_NAMED = 5
# Not amounts: code, addresses, targets of links, citation markers, numbers of lists and headings.
_NO_AMOUNTS = re.compile(
    r"""(?P<fence>^[ ]{0,3}(`{3}|~{3})[^\n]*\n (?:.*?^[ ]{0,3}\2[`~]*[ ]*$ | .*\Z))
      | (?P<code>(?<!`)(`{1,3})(?!`)[^\n]{1,300}?(?<!`)\4(?!`))
      | (?P<address>\b(?:https?|ftp|mailto):[^\s)>\]]+ | \]\([^)\s]{0,2000}\)
        | [\w.+-]{1,64}@[\w.-]+)
      | (?P<marker>\[{1,2}[ ]?\d{1,4}(?:[ ]?[,;–-][ ]?\d{1,4}){0,50}[ ]?\]{1,2})
      | (?P<place>^[ ]{0,8}(?:\#{1,6}[ ]+)?\d{1,4}[.)][ ])""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


def unfound_note(answer: str, sources: Iterable[Any]) -> str:
    """A note on the numbers of ``answer`` that ``sources`` do not hold; empty if there are none.

    Args:
        answer: Markdown that a model wrote.
        sources: Texts and values that it may rest on, as of :func:`shown_values`.
    """
    named = list(dict.fromkeys(unfound_numbers(answer, sources)))
    if not named:
        return ""
    listed = "; ".join(named[:_MAX_NAMED])
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return f"Note: not found in the results: {listed}{more}."


def unfound_numbers(answer: str, sources: Iterable[Any]) -> list[str]:
    """Numbers of ``answer`` that no source holds, as they are written, in order.

    A number is held if one of the sources' numbers, or that as a percentage, rounds to it. Small
    whole numbers, years and what is no amount (module) are not checked; nothing is if the sources
    hold more numbers than are compared.
    """
    text = _NO_AMOUNTS.sub(lambda match: "\n" if "\n" in match[0] else " , ", answer)
    checked = [each for each in read_numbers(text) if not each.may_be_year and not each.is_trivial]
    if not checked:
        return []
    known = KnownNumbers(sources)
    if not known.are_complete:
        return []
    return [each.written for each in checked if not known.hold_roughly(each)]


def shown_values(results: Iterable[AgentResult]) -> Iterator[Any]:
    """All values and texts of results, also those that no prompt has room for."""
    for result in results:
        yield result.answer
        yield result.task_description
        yield len(result.table.rows)
        yield len(result.table.columns)
        # As text: a value that cannot be read must not prevent the answer.
        yield from (_known(cell) for row in result.table.rows for cell in row.values)
        yield from (_known(value) for value in result.data.fields.values())
        yield from (source.excerpt for source in result.sources)


def _known(value: Value) -> Decimal | str:
    text = plain(value)
    try:
        return Decimal(text) if is_number(value) else text
    except ArithmeticError:
        return text
