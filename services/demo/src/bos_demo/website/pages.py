"""Pages of the demo's public site: news, competitors, benchmarks, price indices, as HTML."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bos_demo.questions import read_yaml

FILES = ("figures", "news", "awkward")
_TAG = re.compile(r"<[^>]+>")
_NAVIGATION = (("/", "Flow Trade Gazette"), ("/news", "News"), ("/prices", "Prices"))


class Page(BaseModel):
    """A page as its file says it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    title: str
    date: date
    summary: str
    topic: Literal["general", "news"] = "general"
    kind: Literal["plain", "script", "slow", "redirect"] = "plain"
    body: str = ""
    to: str = ""
    """Where a redirect leads."""

    @property
    def text(self) -> str:
        """What it says, without tags."""
        return " ".join(html.unescape(_TAG.sub(" ", self.body)).split())


@cache
def load_pages() -> tuple[Page, ...]:
    """Every page, in file order."""
    return tuple(_of_files())


def _of_files() -> Iterator[Page]:
    for name in FILES:
        path = files("bos_demo.website") / "pages" / f"{name}.yaml"
        for entry in read_yaml(path.read_text(encoding="utf-8")):
            yield Page.model_validate(entry)


@dataclass(frozen=True, slots=True)
class Gazette:
    """Renders pages: navigation, article, footer."""

    pages: tuple[Page, ...]

    def front(self) -> str:
        """The front page: links to all others."""
        links = "".join(
            f'<li><a href="{each.path}">{html.escape(each.title)}</a></li>' for each in self.pages
        )
        return _document("Flow Trade Gazette", f"<ul>{links}</ul>")

    def article(self, page: Page) -> str:
        """A page as a browser gets it."""
        day = f"{page.date:%d %B %Y}".lstrip("0")
        byline = f"<p><time datetime='{page.date.isoformat()}'>{day}</time></p>"
        if page.kind == "script":
            script = f"document.getElementById('text').textContent = {json.dumps(page.body)};"
            return _document(
                page.title,
                f"{byline}<p id='text'></p><noscript>Please enable JavaScript.</noscript>"
                f"<script>{script}</script>",
            )
        return _document(page.title, f"{byline}{page.body}")


def _document(title: str, body: str) -> str:
    navigation = "".join(f'<a href="{to}">{name}</a> ' for to, name in _NAVIGATION)
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}"
        f"</title></head><body><nav>{navigation}</nav><main><article><h1>{html.escape(title)}</h1>"
        f"{body}</article></main><footer>Flow Trade Gazette, an invented paper. Subscribe to our "
        "newsletter.</footer></body></html>"
    )
