"""``bos login --openid`` as a process, signed in by a real OpenID provider."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest

from .openid_harness import Harness

pytestmark = pytest.mark.e2e
GATEWAY = "127.0.0.1:1"


@asynccontextmanager
async def bos(
    folder: Path, harness: Harness, *words: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command line, whose user has this folder as a home."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from bos_cli.entry import main; main()"),
        *("--target", GATEWAY, "--identity-target", harness.address, *words),
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUNBUFFERED": "1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def says(process: asyncio.subprocess.Process, pattern: str) -> str:
    """What it prints first that looks like this."""
    assert process.stdout is not None
    printed = ""
    async with asyncio.timeout(120):
        while not (found := re.search(pattern, printed)):
            line = (await process.stdout.readline()).decode()
            assert line, printed
            printed += line
    return found[1]


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(120):
        printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def kept_by(folder: Path, harness: Harness) -> str:
    """The name of the user of the stored tokens, as identity knows it."""
    kept = json.loads((folder / "bos/tokens.json").read_text(encoding="utf-8"))[GATEWAY]
    return (await harness.me(kept["access_token"])).username


async def test_on_another_device(tmp_path: Path, harness: Harness) -> None:
    async with bos(tmp_path, harness, "login", "--openid", "--device") as process:
        url = await says(process, r"or open (http\S+)")
        async with harness.issuer.person("ada") as person:
            await person.types_the_code(url)
        assert await ended(process) == (0, f"Signed in to {GATEWAY} as ada.\n")
    assert await kept_by(tmp_path, harness) == "ada"


async def test_in_a_browser_on_this_machine(tmp_path: Path, harness: Harness) -> None:
    async with bos(tmp_path, harness, "login", "--openid", "--no-browser") as process:
        url = await says(process, r"(http\S+)")
        callback = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
        async with harness.issuer.person("ada") as person:
            came_back = await person.signs_in(url, callback)
        async with aiohttp.ClientSession() as browser:
            for lie in ({"code": "x", "state": "made-up"}, {"code": "x"}, {}):
                async with browser.get(callback, params=lie) as response:
                    assert response.status == 400, lie
            async with browser.get(callback, params=came_back) as response:
                assert response.status == 200
        assert await ended(process) == (0, f"\nSigned in to {GATEWAY} as ada.\n")
    assert await kept_by(tmp_path, harness) == "ada"


async def test_who_gives_up_in_the_browser_is_not_signed_in(
    tmp_path: Path, harness: Harness
) -> None:
    async with bos(tmp_path, harness, "login", "--openid", "--no-browser") as process:
        url = await says(process, r"(http\S+)")
        sent = dict(parse_qsl(urlsplit(url).query))
        given_up = {"error": "access_denied", "state": sent["state"]}
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(sent["redirect_uri"], params=given_up) as response,
        ):
            assert response.status == 200
        code, printed = await ended(process)
    assert code == 2
    assert "refused or given up" in printed
    assert not (tmp_path / "bos/tokens.json").exists()


async def test_login_without_a_way_or_with_two_is_refused(tmp_path: Path, harness: Harness) -> None:
    for words in (["login"], ["login", "ada", "--openid"]):
        async with bos(tmp_path, harness, *words) as process:
            code, printed = await ended(process)
        assert code == 2, words
        assert "--openid" in printed, words
