"""Writes the page of all settings from their classes, so that it cannot drift.

::

    .venv/bin/python libs/chassis/settings_reference.py docs/reference/configuration.md

Every installed package named ``bos_…`` with a module ``settings`` is found by itself; a new service
or agent needs no entry anywhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import NoDecode

from bos_chassis.settings import Settings

_PACKAGE_PREFIX = "bos_"
_SHARED = ("bos_chassis", "bos_http", "bos_llm")
"""Packages whose settings hold for every process; they come first."""

_ELSEWHERE = (
    "bos_chassis.auth.access",
    "bos_http.policy",
    "bos_identity.openid.settings",
    "bos_postgres.audit.sealing",
)
"""Modules with settings that are not named ``settings``; they come after those of their package."""

_WORDS: dict[object, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    date: "date",
    Path: "path",
    SecretStr: "secret",
}

PREFACE = """\
# Configuration

This page is generated from the settings classes; `tests/docs/test_configuration.py` fails when it
is out of date. To write it anew:

    .venv/bin/python libs/chassis/settings_reference.py docs/reference/configuration.md

Every setting is an environment variable, or a line of a file `.env` in the working directory; the
environment wins. An empty variable counts as unset. Lists and maps are written as JSON unless the
table says otherwise. A value that cannot be used ends the process at start (exit code 78) with a
message that names the variable and what it must hold.

Units are part of the name: `_S` is seconds, `_BYTES` is bytes.

**Parts.** A row such as `BOS_GATEWAY_SERVER__…` stands for a whole part: the name of one of its
variables goes in place of the dots, and sets it for that service alone. `BOS_SERVER_GRACE_S` sets
the grace of every service of a process; `BOS_GATEWAY_SERVER__GRACE_S` that of the gateway.

**Models per agent.** Beside the variables of `ModelSettings`, every agent (and `PLANNER`,
`COMPOSER`) may have its own `<AGENT>_MODEL_PROVIDER`, `<AGENT>_MODEL`, `<AGENT>_TEMPERATURE` and
`<AGENT>_MODEL_KEYS`, the name of a profile in `BOS_MODEL_KEYS`. A provider that is not `openai`,
`azure` or `compatible` is reached at `<PROVIDER>_BASE_URL` with `<PROVIDER>_API_KEY`. The agent
`HITL_CLASSIFIER` classifies instructions of approvals; `HITL_CLASSIFIER_PROVIDER` is another name
of its `HITL_CLASSIFIER_MODEL_PROVIDER`.

**Two names.** Where this page says that two variables set the same, one of them is enough:
different values end the process at start.

**The command line** `bos` reads `BOS_TARGET`, `BOS_IDENTITY_TARGET`, `BOS_MEMORY_TARGET`,
`BOS_DOCUMENTS_TARGET`, `BOS_FILES_TARGET` and `BOS_API_KEY` from the environment, not from
`.env`; for [grading by a model](evaluation.md#criteria) `BOS_EVAL_GRADER_MODEL`,
`BOS_EVAL_GRADER_URL` and `BOS_EVAL_GRADER_API_KEY`; and for TLS with what `BOS_TARGET` names
`BOS_CA_FILE`, `BOS_CERT_FILE`, `BOS_KEY_FILE` (or
`BOS_INSECURE`). Without `BOS_TARGET` it talks to the running standalone of the same user that
`.data/standalone.json` names, searched from the working directory upwards, as the user signed in
with `bos login`; `BOS_API_KEY` is not sent there. Once signed in, tokens go to the addresses of the
log-in, regardless of the variables. Commands for operators (`bos doctor`, `bos runs log`, `bos
audit`) read their settings from the environment, or, if that names no gateway, from `.env` alone,
never from both.

**Everything in one process** (`bos serve all`) reads the settings of every service below, but sets
addresses, targets, keys and the gateway's store by itself.
"""


@dataclass(frozen=True, slots=True)
class Variable:
    """One line of the reference."""

    names: tuple[str, ...]
    """Environment variables, any of which sets it; for a part ``PREFIX_PART__…``."""
    holds: str
    default: str
    purpose: str

    @property
    def is_part(self) -> bool:
        """Whether it stands for all variables of a part."""
        return not self.default


def settings_classes() -> list[type[Settings]]:
    """The settings classes of every installed package: shared ones first, then by package."""
    names = {m.name for m in pkgutil.iter_modules() if m.name.startswith(_PACKAGE_PREFIX)}
    modules = [
        module
        for name in sorted(names, key=_place)
        for module in (
            f"{name}.settings",
            *(other for other in _ELSEWHERE if other.startswith(f"{name}.")),
        )
    ]
    return [
        cls
        for module in modules
        if importlib.util.find_spec(module) is not None
        for cls in _defined_in(module)
    ]


def variables(cls: type[Settings]) -> Iterator[Variable]:
    """The variables of one settings class, in the order of its fields."""
    prefix = str(cls.model_config.get("env_prefix", ""))
    for name, field in cls.model_fields.items():
        if _is_collected(field):
            continue
        part = _part(field.annotation)
        if part is None:
            yield Variable(
                _names(prefix, name, field), _holds(field), _default(field), _purpose(field)
            )
        else:
            shown = f"{prefix}{name}__…".upper()
            yield Variable((shown,), f"part `{part.__name__}`", "", "For this service alone")


def render(classes: Iterable[type[Settings]]) -> str:
    """The whole page."""
    return "\n".join([PREFACE, *(_section(cls) for cls in classes)])


def _section(cls: type[Settings]) -> str:
    rows = [
        f"| {' or '.join(f'`{n}`' for n in v.names)} | {v.holds} | {v.default} | {v.purpose} |"
        for v in variables(cls)
    ]
    package = cls.__module__.partition(".")[0]
    lines = [
        f"## {cls.__name__} (`{package}`)",
        "",
        inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].replace("``", "`"),
        "",
        "| Variable | Holds | Default | Purpose |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _defined_in(module: str) -> list[type[Settings]]:
    found = vars(importlib.import_module(module)).values()
    return [
        cls
        for cls in found
        if isinstance(cls, type)
        and issubclass(cls, Settings)
        and cls.__module__ == module
        and cls.model_fields
    ]


def _place(package: str) -> tuple[int, str]:
    return (_SHARED.index(package) if package in _SHARED else len(_SHARED), package)


def _is_collected(field: FieldInfo) -> bool:
    """Whether a source of its own gathers the field: maps of secrets are not written as JSON."""
    return SecretStr in get_args(field.annotation) and _is_map(get_origin(field.annotation))


def _is_map(origin: object) -> bool:
    return isinstance(origin, type) and hasattr(origin, "keys")


def _part(annotation: Any) -> type[Settings] | None:
    is_part = isinstance(annotation, type) and issubclass(annotation, Settings)
    return annotation if is_part else None


def _names(prefix: str, name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    if alias is None:
        return ((prefix + name).upper(),)
    return tuple(str(choice).upper() for choice in getattr(alias, "choices", [alias]))


def _holds(field: FieldInfo) -> str:
    words = _words(field.annotation)
    if any(isinstance(item, NoDecode) or item is NoDecode for item in field.metadata):
        words = "list separated by commas"
    return ", ".join(filter(None, (words, _bounds(field))))


def _words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_words(a) for a in arguments if a is not NoneType)
    if _is_map(origin):
        return "JSON map" + _keys(arguments[-1])
    return _WORDS.get(annotation, "JSON")


def _keys(annotation: Any) -> str:
    """The keys of a map's values, where they are a model."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return ""
    return " with the keys " + ", ".join(f"`{name}`" for name in annotation.model_fields)


def _bounds(field: FieldInfo) -> str:
    """The limits among the field's constraints: their attributes are named ge, gt, le and lt."""
    words = {"ge": "from {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    limits = {
        name: getattr(c, name, None) for name in words for c in field.metadata if hasattr(c, name)
    }
    if None not in (limits.get("ge"), limits.get("le")) and len(limits) == 2:
        return f"{limits['ge']} to {limits['le']}"
    lengths = [c.min_length for c in field.metadata if getattr(c, "min_length", 0) > 1]
    return ", ".join(
        [words[name].format(limit) for name, limit in limits.items()]
        + [f"at least {length} characters" for length in lengths]
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value == "" or (not isinstance(value, int | float) and not value):
        return "empty"
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, tuple):
        return f"`{_written(field, value)}`"
    if isinstance(value, dict):
        return f"`{json.dumps(value)}`"
    return f"`{value}`"


def _written(field: FieldInfo, values: tuple[object, ...]) -> str:
    """A list as one would write it."""
    if any(isinstance(item, NoDecode) or item is NoDecode for item in field.metadata):
        return ",".join(map(str, values))
    return json.dumps(values, default=str)


def _purpose(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the page to a path, or to standard output.

    Raises:
        SystemExit: more than one argument.
    """
    if len(arguments) > 1:
        raise SystemExit("usage: python libs/chassis/settings_reference.py [FILE]")
    page = render(settings_classes())
    if arguments:
        Path(arguments[0]).write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    main(sys.argv[1:])
