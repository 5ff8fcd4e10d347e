"""Charts within a terminal: only where it can show them, never elsewhere."""

import base64
import re

import pytest

from bos.gateway.v1 import OrchestratorResponse
from bos_cli.render.images import (
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    ImageProtocol,
    chart_images,
    image_protocol,
    image_text,
)
from bos_testkit.scripted_gateway import RUN_ID, Gateway, response, story

from .commands import at_terminal
from .test_files import digest

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
KITTY, ITERM = ImageProtocol.KITTY, ImageProtocol.ITERM


def with_chart(content: bytes = PICTURE) -> OrchestratorResponse:
    outcome = response()
    chart = outcome.charts.add(title="Revenue by region", type="bar")
    chart.images.add(
        name="revenue.png", digest=digest(content), media_type="image/png", size_bytes=len(content)
    )
    return outcome


def test_the_environment_names_the_protocol() -> None:
    xterm = {"TERM": "xterm-256color"}
    expected: list[tuple[dict[str, str], ImageProtocol | None]] = [
        ({"TERM": "xterm-kitty"}, KITTY),
        ({**xterm, "KITTY_WINDOW_ID": "1"}, KITTY),
        ({"TERM": "xterm-ghostty"}, KITTY),
        ({**xterm, "KONSOLE_VERSION": "220401"}, KITTY),
        ({**xterm, "KONSOLE_VERSION": "211200"}, None),
        ({**xterm, "TERM_PROGRAM": "WezTerm"}, ITERM),
        ({**xterm, "LC_TERMINAL": "iTerm2"}, ITERM),
        ({"TERM": "screen-256color", "TMUX": "/tmp/t", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"KONSOLE_VERSION": "²"}, None),
        ({}, None),
    ]
    assert [row for row in expected if image_protocol(row[0]) is not row[1]] == []


def test_kitty_gets_the_picture_in_chunks_and_answers_nothing() -> None:
    text = image_text(PICTURE, KITTY, 60)
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert "".join(f"\x1b_G{c};{d}\x1b\\" for c, d in parts) + "\n" == text
    assert all(len(data) <= 4096 for _, data in parts)
    assert base64.b64decode("".join(data for _, data in parts)) == PICTURE
    controls = [control for control, _ in parts]
    assert controls[0] == "a=T,f=100,q=2,c=60,m=1"
    assert controls[-1] == "q=2,m=0"
    assert len(parts) > 2


def test_iterm_gets_the_picture_inline() -> None:
    text = image_text(PICTURE, ITERM, 500)
    found = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+);width=(\d+);\w+=1:(.*)\x07\n", text)
    assert (int(found[1]), int(found[2])) == (len(PICTURE), 100)
    assert base64.b64decode(found[3]) == PICTURE


def test_what_is_no_png_or_too_large_is_not_written() -> None:
    assert image_text(b"\x1b[2J", KITTY, 60) == ""
    assert image_text(PICTURE[:8] + bytes(MAX_IMAGE_BYTES), KITTY, 60) == ""


def test_a_few_png_pictures_of_charts_are_shown_each_once() -> None:
    outcome = with_chart()
    chart = outcome.charts[0]
    chart.images.add(name="a.svg", digest="sha256:1", media_type="image/svg+xml", size_bytes=9)
    chart.images.add(name="b.png", digest="sha256:2", media_type="image/png", size_bytes=10**9)
    chart.images.append(chart.images[0])
    assert [image.name for image in chart_images(outcome)] == ["revenue.png"]
    for number in range(9):
        chart.images.add(digest=f"sha256:x{number}", media_type="image/png", size_bytes=9)
    assert len(chart_images(outcome)) == MAX_IMAGES


async def on_terminal(gateway: Gateway, *arguments: str, **environment: str) -> str:
    done = await at_terminal(gateway, "ask", "Who leads?", *arguments, env=environment)
    assert done.code == 0, done.out
    return done.out


@pytest.mark.process
@pytest.mark.requirement("O-05")
async def test_a_terminal_that_can_shows_the_chart_and_others_name_it(gateway: Gateway) -> None:
    gateway.events = story(with_chart())
    gateway.files = {digest(PICTURE): PICTURE}
    shown = await on_terminal(gateway, TERM="xterm-kitty")
    assert "\x1b_Ga=T" in shown
    for part in ("revenue.png", "planning", "Acme leads [1]."):
        assert part in shown
    assert "\x1b_G" not in await on_terminal(gateway, TERM="xterm-256color")
    assert "\x1b_G" not in await on_terminal(gateway, "--no-images", TERM="xterm-kitty")


@pytest.mark.process
async def test_a_chart_that_is_gone_is_left_out_and_the_answer_stands(gateway: Gateway) -> None:
    gateway.events = story(with_chart())
    shown = await on_terminal(gateway, TERM="xterm-kitty")
    assert "\x1b_G" not in shown
    assert RUN_ID in shown
