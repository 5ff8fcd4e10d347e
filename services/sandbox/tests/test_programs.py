"""Legitimate programs give what CPython gives."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from cpython_programs import INPUTS, as_cpython
from sandbox_cases import VALUES

from bos_chassis.values import from_value, to_value

if TYPE_CHECKING:
    from sandbox_client import Sandbox

pytestmark = pytest.mark.requirement("F-02")

PROGRAMS = [
    "12.5 * (3 + 4)",
    "2450 * 17 / 100",
    "7 // 2, -7 // 2, -7 % 3, 7 % -3, divmod(-7, 3)",
    "0.1 + 0.2",
    "2 ** 100",
    "big * big",
    "1 / 3",
    "10 ** -2",
    "round(2.675, 2)",
    "round(1.005, 2), round(2.5), round(3.5), round(-2.5), round(0.5)",
    "[round(n / 8, 2) for n in range(-40, 41)]",
    "round(12345.678, -2), round(1e300, 2), round(1250, -2), round(Decimal_one, 1)",
    "import math\nround(math.pi * 1e5, 3)",
    "sum(r['revenue'] for r in rows)",
    "sum(r['revenue'] for r in rows) / total * 100",
    "from decimal import Decimal\n(rows[0]['revenue'] / total).quantize(Decimal('0.0001'))",
    "from decimal import Decimal, ROUND_HALF_UP\n"
    "Decimal('2.345').quantize(Decimal('0.01'), rounding=ROUND_HALF_UP)",
    "from decimal import Decimal, getcontext\ngetcontext().prec = 50\nDecimal(1) / Decimal(7)",
    "from decimal import Decimal\nDecimal('1.10') + Decimal('2.2'), Decimal('1.10')",
    "from decimal import Decimal\nround(Decimal('2.675'), 2), round(Decimal('2.5'))",
    "max(rows, key=lambda r: r['revenue'])['customer']",
    "sorted(rows, key=lambda r: r['orders'])[0]",
    "[{'customer': r['customer'], 'share': round(float(r['revenue'] / total), 4)} for r in rows]",
    "{r['customer']: r['orders'] for r in rows if r['orders'] > 1}",
    "(today - rows[0]['day']).days",
    "[r['day'].month for r in rows]",
    "from datetime import timedelta\ntoday + timedelta(days=30)",
    "from datetime import date\ndate(2024, 2, 29).replace(year=2028)",
    "from datetime import date, timedelta\nfirst = today.replace(day=1)\n"
    "last = first - timedelta(days=1)\n(last.replace(day=1), last)",
    "from datetime import datetime\ndatetime.strptime('2025-03-04', '%Y-%m-%d').date()",
    "today.strftime('%d %B %Y'), today.isoformat(), today.weekday()",
    "from datetime import datetime, timezone, timedelta\n"
    "datetime(2025, 1, 1, 5, tzinfo=timezone.utc) + timedelta(hours=30)",
    "import math\n[math.sqrt(2), math.exp(1), math.log(10), math.floor(-1.5), math.ceil(1.2)]",
    "import math\nmath.comb(52, 5), math.gcd(84, 36), math.factorial(20), math.hypot(3, 4)",
    "import math\nmath.fsum([0.1] * 10), math.prod([1, 2, 3, 4]), math.isclose(0.1 + 0.2, 0.3)",
    "import math\n[math.inf, -math.inf]",
    "mean = sum(numbers) / len(numbers)\n"
    "(sum((n - mean) ** 2 for n in numbers) / (len(numbers) - 1)) ** 0.5",
    "ordered = sorted(numbers)\nmiddle = len(ordered) // 2\n"
    "result = (ordered[middle - 1] + ordered[middle]) / 2",
    "from collections import Counter\nCounter(numbers).most_common(2)",
    "from collections import defaultdict\ngroups = defaultdict(list)\n"
    "for n in numbers:\n    groups['odd' if n % 2 else 'even'].append(n)\ndict(groups)",
    "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 2)\np.x + p.y",
    "import itertools\nlist(itertools.accumulate(numbers))",
    "import itertools\n[list(g) for k, g in itertools.groupby(sorted(numbers), lambda n: n // 3)]",
    "import itertools\nlist(itertools.combinations([1, 2, 3], 2))",
    "from functools import reduce\nreduce(lambda a, b: a * b, numbers)",
    "from functools import lru_cache\n@lru_cache\ndef fib(n):\n"
    "    return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(60)",
    "import bisect\nbisect.bisect_left([1, 3, 5], 4)",
    "import re\nre.findall(r'\\d+', 'a1 b22 c333')",
    "import re\nre.sub(r'(\\w+)@(\\w+)', r'\\2 at \\1', 'joe@home')",
    "import json\njson.loads('{\"a\": [1, 2.5, null, true]}')",
    "import json\njson.dumps({'b': 1, 'a': [None, 'é']}, sort_keys=True)",
    "import hashlib\nhashlib.sha256(b'bos').hexdigest()",
    "import base64\nbase64.b64encode(b'bos').decode()",
    "import copy\na = [[1]]\nb = copy.deepcopy(a)\nb[0].append(2)\na, b",
    "f'{1234567.891:,.2f} {0.1234:.1%} {42:>6} {7:03d}'",
    "'%.2f %s' % (2.675, 'x'), '{:,}'.format(10**9), format(2.675, '.2f')",
    "' Total '.strip().lower().replace('t', 'T').split('o')",
    "'a,b,,c'.split(','), '-'.join(['x', 'y']), 'abc'[::-1], 'äöü'.upper()",
    "set(numbers) & {1, 2, 3}",
    "[*numbers[:2], *numbers[-2:]], {**{'a': 1}, 'b': 2}",
    "any(n > 8 for n in numbers), all(numbers), min(numbers), max(numbers)",
    "list(zip('ab', [1, 2])), list(enumerate('ab', 1)), list(map(str, [1, 2]))",
    "def compound(p, rate, years):\n    for _ in range(years):\n        p *= 1 + rate\n"
    "    return p\n"
    "round(compound(1000, 0.05, 10), 2)",
    "def f(n):\n    return 1 if n == 0 else n * f(n - 1)\nf(100)",
    "total = 0\nfor i in range(1000):\n    if i % 3 and i % 5:\n        continue\n"
    "    total += i\ntotal",
    "x = 27\nsteps = 0\nwhile x != 1:\n    x = x // 2 if x % 2 == 0 else 3 * x + 1\n"
    "    steps += 1\nsteps",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    message = str(error)\nmessage",
    "match {'kind': 'sale', 'amount': 3}:\n    case {'kind': 'sale', 'amount': a}:\n"
    "        r = a * 2\n    case _:\n        r = 0\nr",
    "class Account:\n    def __init__(self, balance):\n        self.balance = balance\n"
    "    def add(self, amount):\n        self.balance += amount\n        return self\n"
    "Account(5).add(7).balance",
    "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int = 2\n"
    "P(1).x + P(1).y",
    "if __name__ == '__main__':\n    result = 5",
    "result = [n for n in numbers if n > 3]",
    "list = [1, 2]\nlen = 3\nstr = 'x'\n(list, len, str)",
    "result: list[int] = []\nresult.append(4)",
    "import random\nrandom.seed(42)\n[random.randint(1, 6) for _ in range(10)]",
    "import random\nrandom.seed(1)\n"
    "random.random(), random.choice('abc'), random.sample(range(9), 2)",
    "print('a', 'b', sep='-')\nprint(1.0, [None, True], {'k': 'v'})\nprint('ü')",
    "print(round(2.675, 2), 1e16, 1e-7, 123456789.123456789, 2**0.5)",
    "None",
    "(1 if numbers else 0,)  # a comment",
]  # fmt: skip


def normal(value: Any) -> Any:
    return from_value(to_value(sorted(value) if isinstance(value, set) else value))


def exactly(value: Any) -> Any:
    """Distinguishes 1 from 1.0 and Decimal("1.10") from Decimal("1.1")."""
    return repr(value)


@pytest.mark.parametrize("code", PROGRAMS)
async def test_a_program_gives_what_cpython_gives(sandbox: Sandbox, code: str) -> None:
    code = code.replace("Decimal_one", "rows[2]['revenue']")
    expected, printed = as_cpython(code)
    response = await sandbox.run(code, INPUTS)
    assert not response.error_type, response.error_message
    assert exactly(from_value(response.result)) == exactly(normal(expected))
    assert response.stdout == printed


async def test_the_last_expression_goes_before_the_variable_result(sandbox: Sandbox) -> None:
    assert await sandbox.result("result = 1\n2") == 2
    assert await sandbox.result("result = 1\nprint(2)") == 1
    assert await sandbox.result("x = 1") is None


@pytest.mark.parametrize(
    "value",
    [*VALUES, Decimal(2**90), "text with ü and \n", [1, [2.0, None], {"a": Decimal("3.30")}]],
    ids=repr,
)
async def test_values_survive_both_directions(sandbox: Sandbox, value: Any) -> None:
    back = await sandbox.result("given", {"given": value})
    assert repr(back) == repr(value)


async def test_whole_numbers_beyond_64_bits_stay_exact(sandbox: Sandbox) -> None:
    assert await sandbox.result("2 ** 200 + 1") == 2**200 + 1
    assert await sandbox.result("big + 1", {"big": 2**90}) == 2**90 + 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("{3, 1, 2}", [1, 2, 3]),
        ("(1, (2, 3))", [1, [2, 3]]),
        ("range(3)", [0, 1, 2]),
        ("{'b': 1}.keys()", ["b"]),
        ("{1: 'a', 2.5: 'b', (3, 'x'): 'c'}", {"1": "a", "2.5": "b", "3, x": "c"}),
        ("import datetime\ndatetime.timedelta(days=3)", str(timedelta(days=3))),
        ("import datetime\ndatetime.time(9, 30)", time(9, 30).isoformat()),
        ("import datetime\ndatetime.datetime(2025, 1, 1)", datetime(2025, 1, 1, tzinfo=UTC)),
        (
            "from collections import namedtuple\nnamedtuple('P', 'x y')(1, 2)",
            {"x": 1, "y": 2},
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n[P(4)]",
            [{"x": 4}],
        ),
        ("from collections import deque\ndeque([1, 2])", [1, 2]),
    ],
)
async def test_python_shapes_become_plain_data(sandbox: Sandbox, code: str, expected: Any) -> None:
    assert await sandbox.result(code) == expected


async def test_globals_come_back_as_far_as_they_are_data(sandbox: Sandbox) -> None:
    code = "import math\ndef f(): return 1\nshare = given / 4\n_hidden = 2\nn = f()"
    response = await sandbox.run(code, {"given": 10})
    assert {k: from_value(v) for k, v in response.locals.items()} == {"share": 2.5, "n": 1}


@pytest.mark.requirement("F-04")
async def test_every_program_starts_from_a_fresh_state(sandbox: Sandbox) -> None:
    await sandbox.run("leaked = 1\nimport math\nmath = None\nround = None")
    response = await sandbox.run("leaked")
    assert response.error_type == "NameError"
    assert await sandbox.result("round(2.675, 2)") == 2.67


async def test_chance_is_the_same_every_time(sandbox: Sandbox) -> None:
    code = "import random\n[random.random() for _ in range(3)]"
    assert await sandbox.result(code) == await sandbox.result(code)


@pytest.mark.parametrize(
    "today", [date(2024, 5, 6), "2024-05-06", datetime(2024, 5, 6, 12, tzinfo=UTC)]
)
async def test_the_clock_stands_at_the_input_today(sandbox: Sandbox, today: Any) -> None:
    code = "from datetime import date, datetime\n(date.today(), datetime.now().date())"
    assert await sandbox.result(code, {"today": today}) == [date(2024, 5, 6), date(2024, 5, 6)]


async def test_without_today_there_is_no_clock(sandbox: Sandbox) -> None:
    response = await sandbox.run("from datetime import date\ndate.today()")
    assert response.error_type == "ClockUnavailable"
    assert "today" in response.error_message
