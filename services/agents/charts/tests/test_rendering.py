"""Drawing processes: pictures, isolation, limits, shutdown."""

import asyncio
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bos_charts.render import pool
from bos_charts.render.outlines import Outliner
from bos_charts.render.pool import NotDrawn, Renderer
from bos_charts.validate import MAX_SPEC_BYTES, SCHEMA_URL

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.process]

BAR: dict[str, Any] = {
    "$schema": SCHEMA_URL,
    "data": {"values": [{"a": "North", "b": 3}, {"a": "South", "b": -1}]},
    "mark": {"type": "bar"},
    "encoding": {
        "y": {"field": "a", "type": "nominal"},
        "x": {"field": "b", "type": "quantitative"},
    },
}


@pytest_asyncio.fixture(loop_scope="module")
async def asked() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Address of a web server, and the requests that reached it."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


@pytest.mark.requirement("D-31")
async def test_a_specification_becomes_svg_and_png(renderer: Renderer) -> None:
    pictures = await renderer.draw(BAR)
    assert pictures.svg.startswith(b"<svg")
    assert b"North" in pictures.svg
    assert pictures.png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", pictures.png[16:24])
    assert 100 < width < 2000
    assert 50 < height < 2000


async def test_a_process_draws_one_chart_after_another(renderer: Renderer) -> None:
    first = await renderer.draw(BAR)
    pids = renderer.idle_pids
    assert (await renderer.draw(BAR)).png == first.png
    assert renderer.idle_pids == pids
    assert len(pids) == 1


async def test_address_is_refused(renderer: Renderer, asked: tuple[str, list[bytes]]) -> None:
    address, paths = asked
    with pytest.raises(NotDrawn, match="SPECIFICATION_REFUSED: its data are not inline"):
        await renderer.draw(BAR | {"data": {"url": f"{address}/a.csv"}})
    assert paths == []


@pytest.mark.parametrize("kind", ["data", "file", "image"])
@pytest.mark.requirement("D-31")
async def test_no_address_of_an_unchecked_specification_is_loaded(
    renderer: Renderer, asked: tuple[str, list[bytes]], tmp_path: Path, kind: str
) -> None:
    """Isolation of the process itself: what validation refuses is sent unchecked."""
    address, paths = asked
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\nstolen,1\n")
    text = {"mark": "text", "encoding": {"text": {"field": "a"}}}
    image = {"mark": "image", "encoding": {"url": {"field": "a"}}}
    hostile = {
        "data": text | {"data": {"url": f"{address}/a.csv"}},
        "file": text | {"data": {"url": secret.as_uri()}},
        "image": image | {"data": {"values": [{"a": f"{address}/a.png"}]}},
    }[kind]
    try:
        pictures = await renderer.draw({"$schema": SCHEMA_URL, **hostile}, checked=False)
    except NotDrawn:
        pass
    else:
        assert b"stolen" not in pictures.svg
    assert paths == []


async def test_a_process_has_neither_sockets_nor_other_programs() -> None:
    program = (
        "import subprocess, socket; from bos_charts.render import isolation\n"
        "socket.socket().close()\n"  # one case on each side
        "assert isolation.refuse_calls()\n"
        "for attempt in (socket.socket, lambda: subprocess.run(['/bin/true'])):\n"
        "    try: attempt()\n"
        "    except PermissionError: print('refused')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().split() == ["refused", "refused"]


async def test_a_chart_that_needs_too_much_ends_its_process() -> None:
    greedy = BAR | {
        "data": {"sequence": {"start": 0, "stop": 10**9, "as": "b"}},
        "mark": "point",
        "encoding": {"x": {"field": "b", "type": "quantitative"}},
    }
    async with Renderer(workers=1, timeout_s=1) as renderer:
        with pytest.raises(NotDrawn, match=r"RENDERER_(DIED|TIMED_OUT)|PICTURE_TOO_LARGE"):
            await renderer.draw(greedy, checked=False)
        assert renderer.idle_pids == []


async def test_process_that_dies_fails_one_chart_only(monkeypatch: pytest.MonkeyPatch) -> None:
    dying = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    async with Renderer(workers=1, timeout_s=60) as renderer:
        with monkeypatch.context() as patch:
            patch.setattr(pool, "_BOOT", dying)
            with pytest.raises(NotDrawn, match=f"NOT_STARTED: exit code -{signal.SIGSEGV}"):
                await renderer.draw(BAR)
        assert (await renderer.draw(BAR)).png
        (pid,) = renderer.idle_pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_process_killed_while_it_draws_fails_that_chart_only(renderer: Renderer) -> None:
    await renderer.draw(BAR)
    (pid,) = renderer.idle_pids
    os.kill(pid, signal.SIGSTOP)
    drawing = asyncio.create_task(renderer.draw(BAR))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(NotDrawn, match="RENDERER_DIED"):
        await drawing
    assert (await renderer.draw(BAR)).png


async def test_a_cancelled_chart_ends_its_process(renderer: Renderer) -> None:
    await renderer.draw(BAR)
    (pid,) = renderer.idle_pids
    os.kill(pid, signal.SIGSTOP)
    drawing = asyncio.create_task(renderer.draw(BAR))
    await asyncio.sleep(0)
    drawing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drawing
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_specifications_have_a_bound(renderer: Renderer) -> None:
    rows = [{"a": "x" * 200, "b": 1}] * (MAX_SPEC_BYTES // 200)
    with pytest.raises(NotDrawn, match="SPECIFICATION_TOO_LARGE"):
        await renderer.draw(BAR | {"data": {"values": rows}})


def text_of(text: str, anchor: str = "end") -> str:
    return f'<text text-anchor="{anchor}" font-size="10px" fill="#123">{text}</text>'


async def test_hindi_is_drawn_as_outlines_and_latin_stays_text() -> None:
    outliner = Outliner()
    drawn = outliner.replace(text_of("महानदी 2026"))
    assert drawn.startswith("<path ")
    assert 'fill="#123"' in drawn
    assert outliner.replace(text_of("Mahanadi 2026")) == text_of("Mahanadi 2026")

    def width(text: str) -> float:
        path = outliner.replace(text_of(text))
        return -float(path.split("translate(")[1].split(",")[0])

    # A vowel sign takes room of its own, which the rasteriser's own layout forgets.
    assert width("हा") > width("ह") + 2
    assert width("महानदी मैकेनिकल") > width("महानदी") + width("मैकेनिकल") + 1


async def test_fonts_have_indian_and_thai_letters() -> None:
    assert Outliner().missing("हिन्दी বাংলা தமிழ் ไทย") == []
    assert Outliner().missing("\u0dff\u0978\u0e7f") != []


@pytest.mark.parametrize("text", ["東京支店", "مكتب"])
async def test_other_scripts_differ_from_missing_letters(renderer: Renderer, text: str) -> None:
    def spec(label: str) -> dict[str, Any]:
        return BAR | {
            "data": {"values": [{"a": label, "b": 3}]},
            "config": {"font": "Noto Sans"},
        }

    drawn = (await renderer.draw(spec(text))).png
    unassigned = "\U000e0fff" * len(text)
    assert drawn != (await renderer.draw(spec(unassigned))).png
