"""``bos webhooks …`` against a real gateway, and what becomes of webhooks with their account."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from gateway_harness.harness import Harness
from gateway_harness.receiver import answer, open_receiver

pytestmark = pytest.mark.process
BOS = Path(sys.executable).with_name("bos")


async def bos(target: str, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    process = await asyncio.create_subprocess_exec(
        str(BOS),
        *("--target", target, "webhooks", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), errors.decode()


async def test_a_webhook_is_added_tried_out_listed_and_deleted(harness: Harness) -> None:
    async with open_receiver() as receiver, harness.gateway(**receiver.settings()) as client:
        target = client.server.address
        code, out, errors = await bos(target, "add", receiver.url(), "--event", "run.finished")
        assert (code, errors) == (0, "")
        assert "whsec_" in out
        _, listed, _ = await bos(target, "list", "--json")
        (webhook,) = json.loads(listed)["webhooks"]
        webhook_id = webhook["webhook_id"]
        assert webhook["url"] == receiver.url()
        assert webhook["events"] == ["WEBHOOK_EVENT_RUN_FINISHED"]
        assert "whsec_" not in listed

        assert await bos(target, "test", webhook_id) == (0, "delivered: accepted\n", "")
        receiver.answers["/hook"] = answer(503)
        assert await bos(target, "test", webhook_id) == (1, "given up: server error\n", "")
        code, out, _ = await bos(target, "deliveries", webhook_id)
        assert code == 0
        assert out.count("webhook.test") == 2
        code, out, _ = await bos(target, "list")
        assert receiver.url() in out

        assert (await bos(target, "rm", webhook_id, "--yes"))[0] == 0
        code, _, errors = await bos(target, "rm", webhook_id, "--yes")
        assert code != 0
        assert "no such webhook" in errors
        assert (await bos(target, "list"))[1] == "no webhooks\n"
