"""ZIP archives and XML of office files, read within bounds. Nothing is ever unpacked to disk."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from bos_documents.parsing.rejections import DocumentRejected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from bos_documents.parsing.limits import ParsingLimits

_MIB = 1024 * 1024
_DECLARED = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_PLAIN = {b"utf-8", b"us-ascii", b"ascii", b"iso-8859-1"}
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


class Archive:
    """A ZIP archive whose members are read by exact name, each within bounds, and all together."""

    def __init__(self, data: bytes, limits: ParsingLimits) -> None:
        self._limits = limits
        self._left = limits.unpacked_bytes
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, IndexError) as error:
            raise DocumentRejected("DOCUMENT_DAMAGED") from error
        members = self._zip.infolist()
        if len(members) > limits.members:
            raise DocumentRejected("DOCUMENT_UNPACKS_TOO_LARGE")
        self.names = {member.filename for member in members}

    def read(self, name: str) -> bytes:
        """Content of a member; empty if there is none of this name.

        Raises:
            DocumentRejected: It is encrypted, damaged, or unpacks to more than it may.
        """
        if name not in self.names:
            return b""
        member = self._zip.getinfo(name)
        if member.flag_bits & 1:
            raise DocumentRejected("DOCUMENT_ENCRYPTED")
        most = min(self._limits.member_bytes, self._left)
        ratio = self._limits.unpack_ratio * max(member.compress_size, 1)
        most = min(most, max(ratio, _MIB))
        try:
            with self._zip.open(member) as stream:
                data = stream.read(most + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            NotImplementedError,
            ValueError,
        ) as error:
            raise DocumentRejected("DOCUMENT_DAMAGED") from error
        if len(data) > most:
            raise DocumentRejected("DOCUMENT_UNPACKS_TOO_LARGE")
        self._left -= len(data)
        return data

    def xml(self, name: str) -> Element | None:
        """Root element of a member, or None if there is no such member."""
        data = self.read(name)
        return parse_xml(data) if data else None

    def relations(self, part: str) -> dict[str, tuple[str, str]]:
        """Targets within the archive that ``part`` refers to: id to (kind, name)."""
        folder, name = posixpath.split(part)
        root = self.xml(posixpath.join(folder, "_rels", f"{name}.rels"))
        found = {}
        for relation in root.iter(_RELATIONS) if root is not None else ():
            target = relation.get("Target", "")
            if relation.get("TargetMode") == "External" or not target:
                continue
            path = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            found[relation.get("Id", "")] = (relation.get("Type", "").rsplit("/", 1)[-1], path)
        return found


def safe_xml(data: bytes) -> bytes:
    """``data`` as XML in UTF-8 without any document type definition, hence without entities.

    Raises:
        DocumentRejected: It has one, or is in an encoding that could hide one.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        data = re.sub(r"^\s*<\?xml[^>]*\?>", "", text, count=1).encode("utf-8", "replace")
    data = data.removeprefix(b"\xef\xbb\xbf")
    declared = _DECLARED.match(data[:256])
    if declared and declared.group(1).lower() not in _PLAIN:
        raise DocumentRejected("DOCUMENT_UNSAFE")
    if b"\0" in data[:512] or b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise DocumentRejected("DOCUMENT_UNSAFE")
    return data


def parse_xml(data: bytes) -> Element:
    """Root element of ``data``."""
    try:
        return ElementTree.fromstring(safe_xml(data))  # noqa: S314 - no definitions get here
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DocumentRejected("DOCUMENT_DAMAGED") from error


def elements(data: bytes, tag: str) -> Iterator[Element]:
    """Each whole element ``tag``, freed before the next: the tree is never in memory at once."""
    stream = io.BytesIO(safe_xml(data))
    try:
        root = None
        for event, element in ElementTree.iterparse(stream, ("start", "end")):  # noqa: S314
            if root is None:
                root = element
            if event == "end" and element.tag == tag:
                yield element
                element.clear()
                if len(root) > 64:
                    root.clear()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DocumentRejected("DOCUMENT_DAMAGED") from error
