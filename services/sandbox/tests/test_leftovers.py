"""After the abuse of both corpora nothing is left of it: processes, files, descriptors."""

import asyncio
import os
from pathlib import Path

import pytest
import test_hostile_isolated
import test_hostile_programs
from sandbox_client import descendants, open_sandbox

from bos.sandbox.v1 import Limits, Tier
from bos_chassis.values import from_value
from bos_sandbox.settings import SandboxSettings
from bos_testkit.waiting import eventually

pytestmark = [pytest.mark.security, pytest.mark.timeout(600), pytest.mark.requirement("T-14")]

WORKERS = 2


def interpreter_corpus() -> list[str]:
    hostile = (test_hostile_programs.VIOLATIONS, test_hostile_programs.LIMITS)
    return [code for kind in hostile for code, _ in kind.values()]


def process_corpus() -> list[str]:
    """A few of each kind: all of them run one by one in the tests of that tier."""
    own = test_hostile_isolated
    plain = [*own.KILLED.values(), *own.REFUSED.values(), *own.ABSENT.values()]
    paired = [code for code, _ in (*own.HARMLESS.values(), *own.LIMITS.values())]
    forged = [own.FORGED + code for code, _ in own.FORGERIES.values()]
    return [*plain[::5], *paired[::5], *forged[::5]]


@pytest.mark.parametrize(
    ("tier", "corpus"),
    [(Tier.TIER_INTERPRETER, interpreter_corpus()), (Tier.TIER_PROCESS, process_corpus())],
    ids=["interpreter", "process"],
)
async def test_the_corpus_leaves_nothing_behind(
    tier: Tier,
    corpus: list[str],
    process_settings: SandboxSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    settings = process_settings.model_copy(
        update={"max_workers": WORKERS, "process_enabled": tier == Tier.TIER_PROCESS}
    )
    others = set(descendants())
    async with open_sandbox(settings, tier) as sandbox:
        assert from_value((await sandbox.run("1 + 1")).result) == 2
        descriptors = len(os.listdir("/proc/self/fd"))
        limits = Limits()
        limits.timeout.FromMilliseconds(700)

        for start in range(0, len(corpus), WORKERS):
            await asyncio.gather(
                *(sandbox.run(code, limits=limits) for code in corpus[start : start + WORKERS])
            )

        assert from_value((await asyncio.wait_for(sandbox.run("1 + 1"), 60)).result) == 2
        # Workers of the interpreter wait for the next program; isolated ones live for one.
        waiting = WORKERS if tier == Tier.TIER_INTERPRETER else settings.warm_workers
        await eventually(lambda: len(set(descendants()) - others) <= waiting)
        # A worker more than at first has a few pipes.
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 4 * WORKERS)
        assert os.listdir(tmp_path) == []
    await eventually(lambda: not set(descendants()) - others)
