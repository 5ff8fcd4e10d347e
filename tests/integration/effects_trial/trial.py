"""The trial: actions are asked for, decided about and killed over, and counted where they land."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from gateway_harness.run_contract import stored_runs

from bos.agent.v1 import AgentResult
from bos.common.v1 import Value, ValueMap
from bos.gateway.v1 import Approval, ApprovalKind, RunEvent
from bos.runlog.v1 import LogEvent
from bos_errors import Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect

from .actions import AGENTS, Action, Kill, Kind, Moment, Planner, Victim, draw
from .deployment import Deployment, Stores, deployed
from .gates import Shot
from .verdict import Verdict, judge
from .world import World, open_world

_AT_ONCE = 6
_RUN_S = 240.0
"""Longest time of one run; what is killed is back within a few seconds."""
_SHARE_BOTH = 0.25
"""Of the kills of gateways: both at once."""
_TRIES = 2_000
_MOST_QUESTIONS = 50
_ASKS_ANEW_S = 1.0
_BETWEEN_S = 0.1
_AWAY = (Unavailable, ResourceExhausted, DeadlineExceeded, Cancelled)
_UNKNOWN = ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN


@dataclass(frozen=True)
class Company:
    dsn: str
    schema: str
    customer: str


@dataclass
class Outcome:
    verdict: Verdict
    kills: Counter[str]
    """By what was killed."""
    asked_again: int
    """Requests about unknown outcomes, each answered by no."""
    asked_anew: int
    """Questions whose run ended before anything was proposed."""
    seconds: float

    def lines(self, seed: int) -> Sequence[str]:
        kills = " ".join(f"{name}={count}" for name, count in sorted(self.kills.items()))
        figures = self.verdict.figures.items()
        return [
            *(each.line(kind) for kind, each in figures),
            f"seed={seed} kills: {kills} asked_again={self.asked_again} "
            f"asked_anew={self.asked_anew} "
            f"ends={dict(self.verdict.ends)} seconds={self.seconds:.0f}",
            *(f"UNKNOWN {each}" for each in self.verdict.unknown),
            *(f"BREACH {each}" for each in self.verdict.breaches),
        ]


@dataclass(eq=False)
class _Trial:
    actions: Sequence[Action]
    world: World
    deployment: Deployment
    stores: Stores
    chance: random.Random
    answered: set[str] = field(default_factory=set)
    asked_again: int = 0
    asked_anew: int = 0
    kills_by_kind: Counter[Kind] = field(default_factory=Counter)
    longest_s: dict[Kind, float] = field(default_factory=dict)

    async def run(self) -> None:
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(action: Action) -> None:
            async with places:
                began = time.monotonic()
                await self._act(action)
                taken_s = time.monotonic() - began
            self.longest_s[action.kind] = max(taken_s, self.longest_s.get(action.kind, 0.0))

        await asyncio.gather(*(one(action) for action in self.actions))

    async def _act(self, action: Action) -> None:
        """Ask for it until something is proposed; answer, and follow the run to its end."""
        for number in range(_MOST_QUESTIONS):
            proposed = False
            async for event in self._events(action, f"{action.label}/{number}"):
                if event.HasField("approval_requested"):
                    proposed = True
                    await self._answer(action, event.approval_requested.approval)
                    if action.person == "never answers":
                        return
            if proposed:
                return
            self.asked_anew += 1
            await self.deployment.agents[AGENTS[action.kind]].up()
            await asyncio.sleep(_ASKS_ANEW_S)
        raise AssertionError(f"{action.label}: nothing was proposed, the last time: {event}")

    async def _events(self, action: Action, request_id: str) -> AsyncIterator[RunEvent]:
        for _ in range(_TRIES):
            try:
                asked = self.deployment.client.ask_stream(
                    f"Do {action.label}", request_id=request_id, timeout_s=_RUN_S
                )
                async for event in asked:
                    yield event
                    if event.HasField("run_finished"):
                        return
            except _AWAY:
                await asyncio.sleep(_BETWEEN_S)
        raise AssertionError(f"{action.label}: no end")

    async def _answer(self, action: Action, approval: Approval) -> None:
        if approval.approval_id in self.answered:
            return
        client = self.deployment.client
        if approval.kind == _UNKNOWN:
            self.asked_again += 1
            await self._decide(client.deny, approval)
        else:
            await self._shoot(action, "proposed")
            if action.person == "sees another action":
                await self._change(action, approval.run_id)
            if action.person == "denies":
                await self._decide(client.deny, approval)
            elif action.person != "never answers":
                self._arm(action)
                await self._decide(client.approve, approval)
                await self._shoot(action, "approved")
        self.answered.add(approval.approval_id)

    async def _decide(
        self, decide: Callable[[str], Awaitable[Approval]], approval: Approval
    ) -> None:
        for _ in range(_TRIES):
            try:
                await decide(approval.approval_id)
            except _AWAY:
                await asyncio.sleep(_BETWEEN_S)
            else:
                return
        raise AssertionError(f"no gateway accepts the decision about {approval.approval_id}")

    async def _change(self, action: Action, run_id: str) -> None:
        """Have the log hold other arguments under the digest that people see and decide about."""
        where = "run_id = $1::uuid AND kind = 'approval_requested'"
        async with connect(self.stores.gateway, schema=SCHEMA) as session:
            for _ in range(_TRIES):
                owner = await session.fetchrow(
                    "SELECT replica_id FROM runs WHERE run_id = $1::uuid", run_id
                )
                if owner is not None and owner["replica_id"] is None:
                    break
                await asyncio.sleep(_BETWEEN_S)
            payload = await session.fetchval(
                f"SELECT payload FROM run_events WHERE {where}", run_id
            )
            event = LogEvent.FromString(payload)
            (proposed,) = event.approval_requested.approval.actions
            _replace(proposed.arguments, action.label, action.changed)
            await session.execute(
                f"UPDATE run_events SET payload = $2 WHERE {where}",
                run_id,
                event.SerializeToString(),
            )

    async def _shoot(self, action: Action, moment: Moment) -> None:
        kill = action.kill
        if kill is None or kill.moment != moment:
            return
        if moment == "approved":
            await asyncio.sleep(self.chance.uniform(0.0, 0.4))
        self._kill(action, kill.victim)

    def _arm(self, action: Action) -> None:
        """Have the kill happen at a piece that passes between agent and outside."""
        kill = action.kill
        if kill is None or kill.moment not in ("request", "reply"):
            return
        gates = self.world.gates_of(action.kind)
        if not gates:
            loop, delay_s = asyncio.get_running_loop(), self.chance.uniform(0.0, 0.4)
            loop.call_later(delay_s, self._kill, action, kill.victim)
            return
        most = 12 if action.kind == "mail" else 1
        shot = Shot(kill.moment, self.chance.randint(0, most), lambda: self._fire(action, kill))
        self.chance.choice(gates).arm(shot)

    def _fire(self, action: Action, kill: Kill) -> bool:
        """Kill; whether the piece at hand is lost."""
        self._kill(action, kill.victim)
        return kill.victim == "connection" or self.chance.random() < 0.5

    def _kill(self, action: Action, victim: Victim) -> None:
        gates = self.world.gates_of(action.kind)
        if victim == "gateways":
            first, second = self.chance.sample(self.deployment.gateways, 2)
            both = self.chance.random() < _SHARE_BOTH
            killed = [each.kill() for each in ((first, second) if both else (first,))]
        elif victim == "agent" or not gates:
            killed = [self.deployment.agents[AGENTS[action.kind]].kill()]
        else:
            killed = [each.cut() for each in gates]
        self.kills_by_kind[action.kind] += sum(killed)

    def kills(self) -> Counter[str]:
        found = Counter(gateway=sum(each.kills for each in self.deployment.gateways))
        found.update({name: each.kills for name, each in self.deployment.agents.items()})
        found["connections"] = sum(each.cuts for each in self.world.gates.values())
        return found


async def run_trial(
    count: int, seed: int, stores: Stores, company: Company, folder: Path
) -> Outcome:
    """Have ``count`` actions approved and some not, under kills drawn from ``seed``."""
    chance = random.Random(seed)
    actions = draw(count, seed)
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        world = await enter(open_world(company.dsn, company.schema, stores.files))
        planner = Planner(actions, company.customer)
        deployment = await enter(
            deployed(stores, world, planner, folder, lambda: chance.uniform(0.0, 2.0))
        )
        for action in actions:
            if action.kind == "file":
                await deployment.write_file(f"{action.label}.txt", action.label)
                await deployment.write_file(f"{action.changed}.txt", action.label)
        await world.remember_files()
        trial = _Trial(actions, world, deployment, stores, chance)
        await trial.run()
        results = await _results(stores.gateway)
        verdict = judge(actions, results, await world.landed(actions))
        for kind, figures in verdict.figures.items():
            figures.kills = trial.kills_by_kind[kind]
            figures.longest_s = trial.longest_s.get(kind, 0.0)
        seconds = time.monotonic() - began
        return Outcome(verdict, trial.kills(), trial.asked_again, trial.asked_anew, seconds)


async def _results(dsn: str) -> Mapping[str, AgentResult]:
    """Result of the one step of the run that proposed each action, by its label."""
    return {
        request_id.partition("/")[0]: event.step_finished.result
        for request_id, run in (await stored_runs(dsn)).items()
        if any(event.HasField("approval_requested") for event in run.events)
        for event in run.events
        if event.HasField("step_finished")
    }


def _replace(arguments: ValueMap, old: str, new: str) -> None:
    for value in arguments.fields.values():
        _replace_in(value, old, new)


def _replace_in(value: Value, old: str, new: str) -> None:
    if value.HasField("string_value"):
        value.string_value = value.string_value.replace(old, new)
    elif value.HasField("map_value"):
        _replace(value.map_value, old, new)
