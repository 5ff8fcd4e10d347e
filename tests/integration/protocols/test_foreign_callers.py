"""Every path of every endpoint, as REST lists them, called by those whom it must not answer."""

import re

import aiohttp
import pytest
from token_issuer import Issuer

from bos_client import BosClient

from .harness import ANSWER, Harness
from .test_foreign_clients import ROOT

pytestmark = [
    pytest.mark.rest,
    pytest.mark.process,
    pytest.mark.isolation,
    pytest.mark.asyncio(loop_scope="module"),
]

_LIST = (ROOT / "services/rest/internal/protocols/paths.go").read_text()
_CONSTANTS = dict(
    re.findall(
        r'(\w+Path)\s+= "([^"]+)"',
        (ROOT / "services/rest/internal/protocols/caller.go").read_text(),
    )
)
SECRET = "the figures of the third quarter"


def listed() -> list[tuple[str, str, bool]]:
    """Verb, path and openness of each operation of the list."""
    verbs = {"read": ["GET"], "submit": ["POST"]}
    found: list[tuple[str, str, bool]] = []
    for template, methods, is_open in re.findall(
        r"\{template: ([^,]+),\s*methods: (\w+|\[\]string\{[^}]*\})(, open: true)?\}", _LIST
    ):
        parts = [part.strip() for part in template.split("+")]
        path = "".join(
            _CONSTANTS[part] if part in _CONSTANTS else part.strip('"') for part in parts
        )
        named = verbs.get(methods) or [verb.upper() for verb in re.findall(r"Method(\w+)", methods)]
        found += [(verb, path, bool(is_open)) for verb in named]
    assert len(found) >= _LIST.count("{template:"), "the list is written in another way"
    return found


PRIVATE = [(verb, path) for verb, path, is_open in listed() if not is_open]
OPEN = [(verb, path) for verb, path, is_open in listed() if is_open]


async def answered(
    harness: Harness, verb: str, path: str, run_id: str, token: str | None
) -> tuple[int, str]:
    """Status and beginning of an answer about a run."""
    ids = {"response_id": f"resp_{run_id}", "model": "bos", "agent": "sql", "id": run_id}
    filled = re.sub(r"\{(\w+)\}", lambda name: ids.get(name[1], run_id), path)
    headers = {"Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = {} if verb == "POST" else None
    async with (
        aiohttp.ClientSession(harness.rest_url, headers=headers) as http,
        http.request(verb, filled, json=body) as reply,
    ):
        return reply.status, (await reply.content.read(100_000)).decode()


async def test_private_paths_refuse_anonymous_and_forged_callers(harness: Harness) -> None:
    async with BosClient(harness.target, api_key=harness.token("ada")) as bos:
        run_id = (await bos.ask(SECRET)).run_id
    forged = Issuer().token(sub="ada")
    for verb, path in PRIVATE:
        for token in (None, forged, "no-token-at-all"):
            status, text = await answered(harness, verb, path, run_id, token)
            assert status == 401, (verb, path, token, status, text)
            assert SECRET not in text
            assert ANSWER not in text


async def test_no_path_shows_the_run_of_another_user(harness: Harness) -> None:
    async with BosClient(harness.target, api_key=harness.token("ada")) as bos:
        run_id = (await bos.ask(SECRET)).run_id
        before = await bos.get_run(run_id)
        for verb, path in PRIVATE:
            status, text = await answered(harness, verb, path, run_id, harness.token("mallory"))
            assert SECRET not in text, (verb, path)
            assert ANSWER not in text, (verb, path)
            if "{response_id}" in path or "{id}" in path:
                assert status >= 400, (verb, path, text)
        assert await bos.get_run(run_id) == before


async def test_open_paths_are_the_same_for_everybody(harness: Harness) -> None:
    async with BosClient(harness.target, api_key=harness.token("ada")) as bos:
        run_id = (await bos.ask(SECRET)).run_id
    assert OPEN
    for verb, path in OPEN:
        status, text = await answered(harness, verb, path, run_id, None)
        assert status == 200, (verb, path, text)
        assert (status, text) == await answered(harness, verb, path, run_id, harness.token("ada"))
        assert SECRET not in text
