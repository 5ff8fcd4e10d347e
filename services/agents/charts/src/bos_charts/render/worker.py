"""A drawing process: draws charts one after another. Started by the pool, never by hand.

Before it reads a specification it gives up the network, other programs, and memory and time beyond
its limits. It reads frames from standard input and writes frames to standard output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bos_charts.fonts import folders
from bos_charts.render import isolation
from bos_charts.render.outlines import Outliner
from bos_charts.validate import MAX_SPEC_BYTES, SCHEMA_URL, VEGA_LITE_VERSION, problem

_SCALE = 2.0
_MAX_ERROR_CHARS = 200
_SAMPLE = {
    "$schema": SCHEMA_URL,
    "data": {"values": [{"a": "A", "b": 1}]},
    "mark": "bar",
    "encoding": {"x": {"field": "a"}, "y": {"field": "b", "type": "quantitative"}},
    "config": {"font": "Noto Sans"},
}
_ALLOWED_URLS: list[str] = []
"""No address may be loaded; without a list the renderer would load any."""


def main(memory_bytes: int, cpu_s: int) -> None:
    """Draw the charts of requests until standard input ends.

    Args:
        memory_bytes: Private memory.
        cpu_s: Processor time of one chart.
    """
    alone = isolation.enter_empty_network()
    filtered = isolation.refuse_calls()
    import vl_convert

    for folder in folders():
        vl_convert.register_font_directory(str(folder))
    vl_convert.svg_to_png(_svg(vl_convert, _SAMPLE))
    isolation.limit(memory_bytes)
    outliner = Outliner()
    _write({"ready": True, "offline": alone or filtered})
    while (request := _read()) is not None:
        isolation.allow_processor_time(cpu_s)
        if request.get("checked", True) and (why := problem(request["spec"])):
            _write({"refused": why})
            continue
        try:
            svg = _svg(vl_convert, request["spec"])
            png = vl_convert.svg_to_png(outliner.replace(svg), scale=_SCALE)
        except ValueError as error:
            _write({"failed": str(error)[:_MAX_ERROR_CHARS]})
            continue
        content = svg.encode()
        _write({"svg_bytes": len(content), "png_bytes": len(png)}, content, png)


def _svg(vl_convert: Any, spec: Any) -> str:
    svg: str = vl_convert.vegalite_to_svg(
        spec, vl_version=VEGA_LITE_VERSION, allowed_base_urls=_ALLOWED_URLS
    )
    return svg


def _read() -> dict[str, Any] | None:
    """The request; None when the pool closes without one."""
    header = sys.stdin.buffer.read(4)
    size = int.from_bytes(header, "big")
    if len(header) < 4 or size > MAX_SPEC_BYTES:
        return None
    found: dict[str, Any] = json.loads(sys.stdin.buffer.read(size))
    return found


def _write(message: dict[str, Any], *contents: bytes) -> None:
    header = json.dumps(message).encode()
    out = sys.stdout.buffer
    out.write(len(header).to_bytes(4, "big") + header)
    for content in contents:
        out.write(content)
    out.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
