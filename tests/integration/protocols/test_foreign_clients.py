"""Clients that others wrote: generated from OpenAPI, OpenAI's for Node.js, ``llm``."""

import json
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .harness import ANSWER, DEPLOYMENT, QUESTION_BACK, ROWS, Harness, run

pytestmark = [
    pytest.mark.rest,
    pytest.mark.process,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

ROOT = Path(__file__).parents[3]
INSTALLED = ROOT / ".cache/generated-client"
PROGRAM = Path(__file__).with_name("generated_client")


async def built(harness: Harness, folder: Path) -> Path:
    """The program with the client that the served document leads to, compiled strictly."""
    assert INSTALLED.exists(), "install it first: make generated-client"
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{harness.rest_url}/openapi.json") as reply,
    ):
        (folder / "openapi.json").write_text(await reply.text())
    for name in ("walk.ts", "tsconfig.json", "openapi-ts.config.mjs"):
        shutil.copy(PROGRAM / name, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(INSTALLED / "node_modules")
    programs = INSTALLED / "node_modules/.bin"
    await run(str(programs / "openapi-ts"), "--no-log-file", cwd=folder)
    await run(str(programs / "tsc"), "-p", ".", cwd=folder)
    return folder / "walk.js"


async def test_generated_client_asks_streams_approves_and_reads_a_table(
    harness: Harness, tmp_path: Path
) -> None:
    folder = tmp_path / "client"
    folder.mkdir()
    program = await built(harness, folder)
    harness.plan_by_question()
    printed = await run("node", str(program), harness.rest_url, harness.token(), cwd=folder)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert found == {
        "status": "RUN_STATUS_SUCCEEDED",
        "answer": ANSWER,
        "columns": ["name: COLUMN_TYPE_STRING", "amount: COLUMN_TYPE_DECIMAL"],
        "first": ROWS[0],
        "amounts": [row[1] for row in ROWS],
        "streamed": ANSWER,
        "steps": ["a"],
        "waiting": "RUN_STATUS_WAITING_FOR_APPROVAL",
        "shown": ["service=shop-web", "version=1.2"],
        "approved": "RUN_STATUS_SUCCEEDED",
    }
    assert harness.agent.landed == {DEPLOYMENT: 1}


async def test_openai_client_for_node_asks_streams_resumes_and_approves(
    harness: Harness, tmp_path: Path
) -> None:
    installed = ROOT / ".cache/openai-node"
    assert installed.exists(), "install it first: make openai-node"
    (tmp_path / "node_modules").symlink_to(installed / "node_modules")
    program = shutil.copy(Path(__file__).with_name("openai_node") / "walk.mjs", tmp_path)
    harness.plan_by_question()
    printed = await run("node", str(program), harness.rest_url, harness.token(), cwd=tmp_path)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert harness.agent.landed == {DEPLOYMENT: 1}
    answer, approved = found.pop("answer"), found.pop("approved")
    assert answer.startswith(ANSWER)
    assert "| Ada | 1.50 |" in answer
    assert approved.startswith(ANSWER)
    assert found == {
        "status": "completed",
        "chunks": answer,
        "usage": ["completion_tokens", "prompt_tokens", "prompt_tokens_details", "total_tokens"],
        "resumed": answer,
        "shown": True,
        "refused": [400, "n"],
        "models": ["bos", "bos/deploy"],
    }


@pytest.mark.parametrize("streams", [True, False])
async def test_llm_at_the_terminal_asks_settles_and_approves(
    harness: Harness, tmp_path: Path, streams: bool
) -> None:
    program = ROOT / ".cache/front-end/bin/llm"
    assert program.exists(), "install it first: make front-end"
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- {{model_id: bos, model_name: bos, api_base: '{harness.rest_url}/v1', "
        "api_key_name: bos}\n"
    )

    async def say(*words: str) -> str:
        how = [] if streams else ["--no-stream"]
        key = ["--key", harness.token()]
        return await run(
            str(program), *how, *words, *key, cwd=tmp_path, LLM_USER_PATH=str(tmp_path)
        )

    printed = await say("-m", "bos", "Who brought what?")
    assert printed.startswith(ANSWER)
    assert "| Ada | 1.50 |" in printed
    harness.plan(DEPLOYMENT)
    assert "trigger_deployment" in await say("-m", "bos", "Put it into production")
    assert not harness.agent.landed
    assert ANSWER in await say("-c", "yes")
    assert harness.agent.landed == {DEPLOYMENT: 1}
    harness.ask_back()
    assert QUESTION_BACK in await say("-m", "bos", "Who brought what?")
    assert ANSWER in await say("-c", "2026")
    (settled,) = harness.gateway.planner.requests[-1].clarifications
    assert settled.reply == "2026"
