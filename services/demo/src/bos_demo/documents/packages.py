"""Office packages: ZIP archives of XML parts, with the same bytes on every machine."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date
from xml.sax.saxutils import escape

XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_CORE_TYPE = "application/vnd.openxmlformats-package.core-properties+xml"
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)


def package(
    main: str, parts: Mapping[str, str], types: Mapping[str, str], title: str, day: date
) -> bytes:
    """Return an Office package.

    Args:
        main: Name of the part that is opened first.
        parts: XML of each part by its name, without the declaration.
        types: Content type of each part that is no relation.
        title: Title in the properties of the document.
        day: Day of its creation and change.
    """
    moment = f"{day.isoformat()}T09:00:00Z"
    core = (
        f'<cp:coreProperties xmlns:cp="{_PACKAGE}/metadata/core-properties" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f"<dc:title>{escape(title)}</dc:title><dc:creator>Nilgiri Flow Works Ltd.</dc:creator>"
        f'<dcterms:created xsi:type="dcterms:W3CDTF">{moment}</dcterms:created>'
        f'<dcterms:modified xsi:type="dcterms:W3CDTF">{moment}</dcterms:modified>'
        "</cp:coreProperties>"
    )
    overrides = "".join(
        f'<Override PartName="/{name}" ContentType="{kind}"/>'
        for name, kind in {**types, "docProps/core.xml": _CORE_TYPE}.items()
    )
    content_types = (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>'
    )
    core_kind = f"{_PACKAGE}/relationships/metadata/core-properties"
    root = relations([(f"{RELATIONS}/officeDocument", main), (core_kind, "docProps/core.xml")])
    everything = {
        "[Content_Types].xml": content_types,
        "_rels/.rels": root,
        **parts,
        "docProps/core.xml": core,
    }
    out = io.BytesIO()
    # Stored, as compressed bytes differ between versions of zlib.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in everything.items():
            archive.writestr(zipfile.ZipInfo(name, _FIRST_DAY), XML + content)
    return out.getvalue()


def relations(targets: Sequence[tuple[str, str]]) -> str:
    """Return relations rId1, rId2, … of (kind, target); a short kind is one of Office."""
    inner = "".join(
        f'<Relationship Id="rId{number}" '
        f'Type="{kind if "/" in kind else f"{RELATIONS}/{kind}"}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{inner}</Relationships>'
