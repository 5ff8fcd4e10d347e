"""Formulas of Office (OMML) as linear text: ``c^2``, ``(a+b)/(2)``, ``√(x)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MAX_DEPTH = 40


def linear(element: Element, depth: int = 0) -> str:
    """The formula in ``element``; empty beyond the depth that formulas have."""
    if depth > _MAX_DEPTH:
        return ""
    kind = element.tag.removeprefix(M)
    if kind == "t":
        return element.text or ""

    def part(name: str) -> str:
        found = element.find(f"{M}{name}")
        return linear(found, depth + 1) if found is not None else ""

    match kind:
        case "sSup":
            return f"{part('e')}^{_grouped(part('sup'))}"
        case "sSub":
            return f"{part('e')}_{_grouped(part('sub'))}"
        case "sSubSup":
            return f"{part('e')}_{_grouped(part('sub'))}^{_grouped(part('sup'))}"
        case "f":
            return f"{_grouped(part('num'))}/{_grouped(part('den'))}"
        case "rad":
            degree = part("deg")
            return f"{f'root_{_grouped(degree)}' if degree else '√'}({part('e')})"
        case "nary":
            sign = element.find(f"{M}naryPr/{M}chr")
            sign_text = sign.get(f"{M}val", "∫") if sign is not None else "∫"
            low, high = part("sub"), part("sup")
            bounds = (f"_{_grouped(low)}" if low else "") + (f"^{_grouped(high)}" if high else "")
            return f"{sign_text}{bounds} {part('e')}"
        case "d":
            inner = ", ".join(linear(each, depth + 1) for each in element.iterfind(f"{M}e"))
            return f"({inner})"
        case "mr":
            return ", ".join(linear(each, depth + 1) for each in element.iterfind(f"{M}e"))
        case "m" | "eqArr":
            tag = f"{M}{'mr' if kind == 'm' else 'e'}"
            return "[" + "; ".join(linear(each, depth + 1) for each in element.iterfind(tag)) + "]"
    # Formulas hold text of the document too, without a namespace of their own.
    own = element.text or "" if element.tag.endswith("}t") else ""
    return own + "".join(linear(each, depth + 1) for each in element)


def _grouped(text: str) -> str:
    """``text`` in brackets, where it is more than one number or letter."""
    return text if len(text) < 2 or text.isalnum() else f"({text})"
