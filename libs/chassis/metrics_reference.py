"""Writes the page of all metrics from their classes, so that it cannot drift.

::

    .venv/bin/python libs/chassis/metrics_reference.py docs/reference/metrics.md
    .venv/bin/python libs/chassis/metrics_reference.py --check docs/reference/metrics.md

Every installed package named ``bos_…`` with a module ``metrics`` is found by itself; a class whose
name ends in ``Metrics`` is made on an empty registry and asked for what it holds. Metrics of REST
are read from its Go source.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

_PACKAGE_PREFIX = "bos_"
_SHARED = ("bos_chassis", "bos_http", "bos_llm", "bos_postgres", "bos_webserver")
"""Packages whose metrics several services have; they come first."""
_ELSEWHERE = {
    "bos_chassis": ("bos_chassis.metrics.standard", "bos_chassis.metrics.disk"),
    "bos_http": ("bos_http.observe",),
    "bos_llm": ("bos_llm.endpoints.observe",),
    "bos_postgres": ("bos_postgres.pool_metrics",),
}
"""Modules with metrics that are not named ``metrics``."""
_GO = Path(__file__).parents[2] / "services/rest/internal/telemetry/telemetry.go"
_GO_METRIC = re.compile(
    r"prometheus\.New(Counter|Gauge|Histogram)(?:Vec)?\(prometheus\.\w+Opts\{(.*?)\n?\s*\}"
    r"(?:, \[\]string\{([^}]*)\})?\)",
    re.DOTALL,
)

PREFACE = """\
# Metrics

This page is generated from the code; `make check` fails when it is out of date. To write it anew:

    .venv/bin/python libs/chassis/metrics_reference.py docs/reference/metrics.md

Every service offers its metrics over HTTP at `/metrics` of `BOS_SERVER_METRICS_PORT`, REST at
`BOS_REST_METRICS_ADDRESS`; neither asks who reads them. A histogram has the samples `…_bucket`
(with the label `le`), `…_sum` and `…_count`. Readers that accept the OpenMetrics format get
exemplars: the trace id of one observation of a bucket, where traces are recorded.

Labels are bounded: states, names of the code, and configured names. Where a name comes from
outside, the first ones count and all others are `other`; no label holds a user, a question or a
path.

Beside these, every Python service has `process_…`, `python_gc_…` and `python_info`, and REST
`process_…` and `go_…`.
"""


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """One metric of the page."""

    name: str
    """As it is queried: counters end in ``_total``."""
    kind: str
    labels: tuple[str, ...]
    meaning: str


def sections() -> list[tuple[str, list[Row]]]:
    """The metrics of each package: shared ones first, then by package, REST last."""
    names = {m.name for m in pkgutil.iter_modules() if m.name.startswith(_PACKAGE_PREFIX)}
    found = [(name, rows) for name in sorted(names, key=_place) if (rows := sorted(_of(name)))]
    return [*found, ("rest", sorted(of_go(_GO.read_text("utf-8"))))]


def render(found: Iterable[tuple[str, list[Row]]]) -> str:
    """The whole page."""
    parts = [PREFACE]
    for package, rows in found:
        head = "| Metric | Type | Labels | Meaning |"
        parts += [f"## `{package}`", "", head, "|---|---|---|---|"]
        for row in rows:
            labels = ", ".join(f"`{label}`" for label in row.labels) or "none"
            parts.append(f"| `{row.name}` | {row.kind} | {labels} | {row.meaning} |")
        parts.append("")
    return "\n".join(parts)


def of_go(source: str) -> Iterator[Row]:
    """The metrics that Go source registers with the Prometheus client."""
    for kind, options, labels in _GO_METRIC.findall(source):
        texts = dict(re.findall(r'(Name|Help):\s*"([^"]*)"', options))
        names = tuple(re.findall(r'"([^"]*)"', labels))
        yield Row(texts["Name"], kind.lower(), names, _cell(texts["Help"]))


def _of(package: str) -> Iterator[Row]:
    for module in (f"{package}.metrics", *_ELSEWHERE.get(package, ())):
        if importlib.util.find_spec(module) is None:
            continue
        for cls in _classes(module):
            yield from rows_of(_made(cls))


def rows_of(metrics: Any) -> Iterator[Row]:
    """The metrics that an object holds as attributes, or describes as a collector."""
    held = [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]
    for each in held:
        kind = each._type or "unknown"
        name = each._name + ("_total" if kind == "counter" else "")
        yield Row(name, kind, tuple(each._labelnames), _cell(each._documentation))
    if not held:
        for family in metrics.describe():
            labels = tuple(getattr(family, "_labelnames", ()))
            yield Row(family.name, family.type, labels, _cell(family.documentation))


def _classes(module: str) -> list[type]:
    found = vars(importlib.import_module(module)).values()
    return [
        cls
        for cls in found
        if isinstance(cls, type) and cls.__module__ == module and cls.__name__.endswith("Metrics")
    ]


def _made(cls: type) -> Any:
    parameters = inspect.signature(cls).parameters
    return cls(CollectorRegistry()) if "registry" in parameters else cls()


def _place(package: str) -> tuple[int, str]:
    return (_SHARED.index(package) if package in _SHARED else len(_SHARED), package)


def _cell(text: str) -> str:
    return " ".join(text.split()).removesuffix(".").replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Write the page to a path, or compare it with ``--check``; 1 if it differs."""
    check = arguments[:1] == ["--check"]
    if len(arguments) != 1 + check:
        print("usage: metrics_reference.py [--check] PATH", file=sys.stderr)
        return 2
    path, page = Path(arguments[-1]), render(sections())
    if not check:
        path.write_text(page, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != page:
        print(f"{path} is out of date; write it anew with libs/chassis/metrics_reference.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
