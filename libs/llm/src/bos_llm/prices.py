"""Prices of models: the table that comes along (``prices.json``), and overrides by settings."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from bos_errors import ConfigurationError
from bos_llm.usage import ModelPrice

_VARIABLE = "BOS_MODEL_PRICES_FILE"
# "gpt-4.1-2025-04-14", "claude-sonnet-4-20250514", "gpt-4-0613": one price for all dates.
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)$")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    about: str = ""
    taken_on: str = ""
    models: dict[str, ModelPrice]
    ends: dict[str, date] = {}


class PriceTable:
    """Prices by model name.

    Args:
        prices: US dollars per million tokens by the name of a model or of its family.
    """

    def __init__(self, prices: Mapping[str, ModelPrice]) -> None:
        self._prices = dict(prices)

    @classmethod
    def read(cls, file: Path | None, overrides: Mapping[str, ModelPrice]) -> PriceTable:
        """The table that comes along, single models of it replaced by a file and by settings.

        Raises:
            ConfigurationError: the file cannot be read, or is no table of prices.
        """
        own = _of_file(file) if file is not None else {}
        return cls({**_built_in().models, **own, **overrides})

    def find(self, *names: str) -> ModelPrice | None:
        """The price of the first of ``names`` that has one; None if there is none.

        A name may carry a path before it (``models/gemini-2.5-flash``) and a date behind it.
        """
        for name in names:
            plain = name.rpartition("/")[2]
            for candidate in (name, plain, _SNAPSHOT.sub("", plain)):
                if candidate in self._prices:
                    return self._prices[candidate]
        return None


def announced_end(model: str) -> date | None:
    """The day from which its provider no longer serves ``model``; None if none is known."""
    plain = model.rpartition("/")[2]
    ends = _built_in().ends
    return next((ends[name] for name in (plain, _SNAPSHOT.sub("", plain)) if name in ends), None)


@cache
def _built_in() -> _Table:
    text = files("bos_llm").joinpath("prices.json").read_text(encoding="utf-8")
    return _Table.model_validate_json(text)


def _of_file(path: Path) -> dict[str, ModelPrice]:
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        return _Table.model_validate(data).models
    except OSError as error:
        raise ConfigurationError(f"{_VARIABLE}: {path} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        problem = error.errors(include_url=False)[0]["msg"]
        raise ConfigurationError(f"{_VARIABLE}: {path}: {where}: {problem}") from None
    except ValueError:
        raise ConfigurationError(
            f"{_VARIABLE}: {path} is neither JSON nor (with that ending) TOML; see prices.json of "
            "bos_llm for its shape"
        ) from None
