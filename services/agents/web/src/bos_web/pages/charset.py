"""Text of a page's bytes, decoded as browsers do it. Pure."""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_PARAMETER: Final = re.compile(r"""charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_META: Final = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,300}?(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""",
    re.IGNORECASE,
)
_META_WITHIN_BYTES: Final = 2_048
# Python knows codecs that are no charsets, and some that take quadratic time.
_CHARSETS: Final = re.compile(
    r"utf-?8|utf-?16(-?le|-?be)?|us-ascii|ascii|latin-?1|iso-?8859-(?:[1-9]|1[013-6])|windows-125[0-8]"
    r"|windows-874|cp125[0-8]|shift[_-]jis|euc-(?:jp|kr)|gb2312|gbk|gb18030|big5|koi8-[ru]|macintosh"
)
_AS_BROWSERS: Final = {
    "us-ascii": "cp1252",
    "ascii": "cp1252",
    "latin1": "cp1252",
    "latin-1": "cp1252",
    "iso-8859-1": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "macintosh": "mac_roman",
}


def decoded(body: bytes, content_type: str) -> str:
    """Text of a body: by its byte order mark, header, own declaration, else UTF-8 or Windows-1252.

    Args:
        body: The page.
        content_type: The header ``Content-Type``, with its parameters.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    header = _PARAMETER.search(content_type)
    meta = _META.search(body[:_META_WITHIN_BYTES])
    declared = [header[1]] if header else []
    declared += [meta[1].decode("ascii")] if meta else []
    for name in map(str.lower, declared):
        if not _CHARSETS.fullmatch(name):
            continue
        if name.startswith(("utf-16", "utf16")) and name is not declared[0]:
            name = "utf-8"
        try:
            return body.decode(_AS_BROWSERS.get(name, name), "replace")
        except LookupError:
            continue
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")
