"""After the abuse of both corpora nothing is left of it: processes, files, descriptors."""

import asyncio
import os
from pathlib import Path

import pytest
import test_hostile_isolated
import test_hostile_programs
from sandbox_client import open_sandbox

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
    others = children()
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
        await eventually(lambda: len(children() - others) <= waiting)
        assert not [pid for pid in children() - others if state(pid) == "Z"]
        # A worker more than at first has a few pipes.
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 4 * WORKERS)
        assert os.listdir(tmp_path) == []
    await eventually(lambda: not children() - others)


def children() -> set[int]:
    """Ids of the processes that this one or its children started, the dead included."""
    parents = {pid: int(fields[1]) for pid, fields in processes().items()}
    found: set[int] = set()
    wanted = {os.getpid()}
    while wanted:
        wanted = {pid for pid, parent in parents.items() if parent in wanted} - found
        found |= wanted
    return found


def state(pid: int) -> str:
    return processes().get(pid, [""])[0]


def processes() -> dict[int, list[str]]:
    """State, parent and so on of every process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    found[int(name)] = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
    return found
