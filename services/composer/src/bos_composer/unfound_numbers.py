"""Check of the numbers that the model wrote: those that nothing it was shown holds are named. Pure.

The answer is streamed while it is written, so a number is not taken out of it: a note behind the
answer names the numbers that stand in no result, question, date or other text of the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from bos.agent.v1 import AgentResult
from bos_chassis.values import from_value_map, table_rows
from bos_llm.numbers.check import KnownNumbers
from bos_llm.numbers.reading import read_numbers

_MAX_NAMED = 5
# Not amounts: code, addresses, targets of links, citation markers, numbers of lists and headings.
_NO_AMOUNTS = re.compile(
    r"""(?P<fence>^[ ]{0,3}(`{3}|~{3})[^\n]*\n (?:.*?^[ ]{0,3}\2[`~]*[ ]*$ | .*\Z))
      | (?P<code>(?<!`)(`{1,3})(?!`)[^\n]{1,300}?(?<!`)\4(?!`))
      | (?P<address>\b(?:https?|ftp|mailto):[^\s)>\]]+ | \]\([^)\s]*\) | [\w.+-]{1,64}@[\w.-]+)
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
    whole numbers, years and what is no amount (module) are not checked.
    """
    text = _NO_AMOUNTS.sub(lambda match: "\n" if "\n" in match[0] else " , ", answer)
    checked = [each for each in read_numbers(text) if not each.may_be_year and not each.is_trivial]
    if not checked:
        return []
    known = KnownNumbers(sources)
    return [each.written for each in checked if not known.hold_roughly(each)]


def shown_values(results: Iterable[AgentResult]) -> Iterator[Any]:
    """All values and texts of results, also those that no prompt has room for."""
    for result in results:
        yield result.answer
        yield result.task_description
        yield table_rows(result.table)
        yield from_value_map(result.data)
        yield [source.excerpt for source in result.sources]
