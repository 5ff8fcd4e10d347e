"""What comes back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from multidict import CIMultiDict, CIMultiDictProxy

_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
# Python knows codecs that are no charsets, and some that take quadratic time.
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-8859-\d{1,2}|windows-125\d|cp125\d"
    r"|shift_jis|euc-(jp|kr)|gb2312|gbk|gb18030|big5|koi8-[ru]"
)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response. A body that breaks a limit raises; none is ever cut short."""

    status: int
    headers: Mapping[str, str]
    """By name in any case; the first value where a name is repeated."""
    body: bytes = field(repr=False)
    """Unpacked."""
    final_url: str
    """Of the last redirect, without fragment."""
    elapsed_s: float
    """Redirects included."""

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def content_type(self) -> str:
        """Lower case, without parameters; empty if the host names none."""
        return media_type(self.headers.get("Content-Type", ""))

    def text(self) -> str:
        """The body in its declared charset, or UTF-8; undecodable bytes become U+FFFD."""
        found = _CHARSET.search(self.headers.get("Content-Type", ""))
        charset = "utf-8" if found is None else found[1].lower()
        if not _CHARSETS.fullmatch(charset):
            charset = "utf-8"
        try:
            return self.body.decode(charset, "replace")
        except LookupError:  # iso-8859-99
            return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class HttpStream:
    """A response whose body is still arriving; see :meth:`bos_http.HttpClient.stream`."""

    status: int
    headers: Mapping[str, str]
    """As of :class:`HttpResponse`."""
    pieces: AsyncIterator[bytes] = field(repr=False)
    """The body, unpacked, within the limits of the policy; read once."""


def media_type(content_type: str) -> str:
    """``text/html`` of ``Text/HTML; charset=utf-8``."""
    return content_type.partition(";")[0].strip().lower()


def clean_headers(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """Headers that any text format can hold: bytes that are not UTF-8 become U+FFFD."""
    if all(value.isascii() for value in headers.values()):
        return headers
    return CIMultiDictProxy(CIMultiDict((n, _replace_bytes(v)) for n, v in headers.items()))


def _replace_bytes(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
