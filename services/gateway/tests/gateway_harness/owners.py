"""One run, two owners that act out what processes do to each other, and one real PostgreSQL.

Fold, decide, the filter of events and every statement are those of the product; the tests decide
what happens next, and :meth:`InterleavingHarness.check` says whether the contract of runs holds.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from bos.agent.v1 import SIDE_EFFECT_CLASS_NONE, AgentResult
from bos.common.v1 import AgentError
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import RUN_STATUS_CANCELLED
from bos.planner.v1 import Plan
from bos.runlog.v1 import (
    AnswerStarted,
    CancelRequested,
    LogEvent,
    PlanFailed,
    Planned,
    RunAdopted,
    RunFinished,
    RunReleased,
    StepFinished,
)
from bos_errors import AgentErrorType
from bos_gateway.core.decide import Command, Compose, MakePlan, Record, RunStep, decide
from bos_gateway.core.fold import admissible, apply, fold, status_after
from bos_gateway.core.response import composed_response
from bos_gateway.core.run_state import RunState
from bos_gateway.ownership.owners import Adopted, Ownership
from bos_gateway.ownership.poison import LEASE_EXPIRED
from bos_gateway.run_log.reader import Runs
from bos_gateway.run_log.records import Append, NewRun
from bos_gateway.run_log.statements import are_stored, insert_events, insert_runs
from bos_gateway.service import new_run_id
from bos_testkit.plans import step
from gateway_harness.run_logs import FAILED, IRREVERSIBLE, START, SUCCEEDED, accepted, acting, event

LEASE_S = 3600.0
_ENDINGS = 300
SAFE, ONCE = "safe", "once"
"""Agents: one that may be asked twice, and one that may not."""
FAILS = "fail"
"""Task of a step that cannot succeed; another plan does without it."""


@dataclass
class Held:
    """A run as its owner has it in memory."""

    epoch: int
    state: RunState
    inbox: list[LogEvent] = field(default_factory=list)
    active: dict[object, Command] = field(default_factory=dict)
    begun: set[object] = field(default_factory=set)
    ended: set[object] = field(default_factory=set)
    sent: list[Append] = field(default_factory=list)
    """Applied, and on their way to the log; repeated until their outcome is known."""


@dataclass
class Owner:
    """A process: an identity, a session of its own, and what it keeps in memory."""

    session: Any
    ownership: Ownership
    held: Held | None = None
    holds_lease: bool = False


@dataclass
class Late:
    """A statement that was sent by a caller that no longer waits for it, or will repeat it."""

    session: Any
    replica_id: UUID
    appends: list[Append]


def key_of(command: Command) -> object:
    match command:
        case RunStep(step_id=step_id):
            return ("step", step_id)
        case Compose():
            return "compose"
        case _:
            return "plan"


class InterleavingHarness:
    def __init__(self, sessions: list[Any], pool: Any) -> None:
        self.pool, self.runs, self.reader = pool, Runs(pool), sessions[2]
        self.owners = [Owner(s, Ownership(pool, uuid4(), LEASE_S)) for s in sessions[:2]]
        self.run_id = new_run_id()
        self.now = START
        self.plan: list[Any] = []
        self.late: list[Late] = []
        self.seen: dict[int, bytes] = {}
        self.executions: Counter[str] = Counter()
        self.completed: set[str] = set()
        self.cancelled = False

    async def accept(self, plan: list[Any], concurrency: int) -> None:
        self.plan = plan
        for owner in self.owners:
            await self.live(owner)
        cards = acting(SIDE_EFFECT_CLASS_NONE, name=SAFE), acting(IRREVERSIBLE, name=ONCE)
        first = accepted(*cards, max_concurrency=concurrency, max_steps=8, max_revisions=1)
        first.run_accepted.user_id = "u"
        run = NewRun(self.run_id, "u", str(self.run_id), b"", "", "?", first)
        owner = self.owners[0]
        await insert_runs(owner.session, owner.ownership.replica_id, [run])
        owner.held = Held(1, fold(str(self.run_id), [first]))
        self.show(1, [first])

    async def live(self, owner: Owner) -> list[Adopted]:
        _, ours = await owner.ownership.take()
        owner.holds_lease = True
        return ours

    def show(self, first: int, events: list[LogEvent]) -> None:
        """A client gets the events; those marked as complete count as complete."""
        for sequence, each in enumerate(events, first):
            self.seen[sequence] = each.SerializeToString(deterministic=True)
            if each.HasField("step_finished"):
                self.completed.add(each.step_finished.step_id)

    async def execute(self, letter: Late) -> bool:
        """The fencing statement; whether the events are in the log now."""
        query = "SELECT replica_id, epoch FROM runs WHERE run_id = $1"
        row = await self.reader.fetchrow(query, self.run_id)
        found = await insert_events(letter.session, letter.replica_id, [letter.appends])
        if self.run_id in found and found[self.run_id].written:
            assert row["replica_id"] == letter.replica_id, "an earlier owner wrote"
            assert row["epoch"] == letter.appends[0].epoch, "at an earlier epoch"
            return True
        return all([await are_stored(letter.session, each) for each in letter.appends])

    async def send(self, owner: Owner, how: str) -> None:
        """Send what the owner has to say, or repeat it; ``how`` it goes is one of three ways."""
        held = owner.held
        letter = Late(owner.session, owner.ownership.replica_id, list(held.sent))
        if how == "arrives late":
            self.late.append(letter)
            return
        ours = await self.execute(letter)
        if how == "answer lost":
            return
        if not ours:
            owner.held = None
            await owner.ownership.release(self.run_id, held.epoch)
            return
        held.sent = []
        for append in letter.appends:
            self.show(append.first_sequence, list(append.events))
        if held.state.finished:
            owner.held = None

    def store(self, held: Held, events: list[LogEvent]) -> None:
        """Apply, and have it written: what the product does, row of the run included."""
        before = after = held.state.status
        for each in events:
            after = status_after(after, each)
        append = Append(
            self.run_id,
            held.epoch,
            held.state.last_sequence + 1,
            events,
            status=after if after != before else None,
            finished=events[-1].HasField("run_finished"),
        )
        for each in events:
            apply(held.state, each)
        held.sent.append(append)

    async def find_something_to_say(self, owner: Owner) -> None:
        """Have the owner come to where its next turn sends a statement, if its run goes on."""
        for _ in range(4):
            held = owner.held
            if held is None or held.sent or held.inbox:
                return
            pending = [key for key in held.active if key not in held.ended]
            if pending:
                self.answer(held, pending[0], well=True)
            else:
                await self.drive(owner, "arrives")

    async def drive(self, owner: Owner, how: str) -> None:
        """One turn of the owner's loop, then of its writer."""
        held = owner.held
        if held is None:
            return
        self.turn(owner, held)
        if held.sent:
            await self.send(owner, how)

    def turn(self, owner: Owner, held: Held) -> None:
        """Decide and apply; nothing of that is known to be in the log yet."""
        if held.state.finished:
            return
        if held.inbox:
            (events, _), held.inbox = admissible(held.state, held.inbox), []
        else:
            commands = decide(held.state, self.now)
            if not (commands and isinstance(commands[0], Record)):
                self.perform(owner, held, commands)
                return
            events, _ = admissible(held.state, commands[0].events)
        if events:
            self.store(held, events)

    def perform(self, owner: Owner, held: Held, commands: list[Command]) -> None:
        """Start what is wanted and not under way; only who holds a lease may.

        What may not be done twice waits until all that came before is in the log.
        """
        if not owner.holds_lease:
            return
        wanted = {key_of(command): command for command in commands}
        held.active = {key: held.active.get(key, c) for key, c in wanted.items()}
        held.ended &= set(wanted)
        for key, command in wanted.items():
            if isinstance(command, RunStep) and key not in held.begun:
                agent = held.state.steps[command.step_id].step.agent
                if agent == ONCE and held.sent:
                    del held.active[key]
                    continue
                held.begun.add(key)
                assert command.step_id not in self.completed, "a completed step runs again"
                self.executions[command.step_id] += 1
                assert agent == SAFE or self.executions[command.step_id] == 1, "doubled silently"

    def answer(self, held: Held, key: object, well: bool) -> None:
        """An effect comes to an end, or in the case of an answer a piece further."""
        command, state = held.active[key], held.state
        match command:
            case MakePlan(revision=revision):
                # Another plan does in another way what failed.
                steps = [step("mended", SAFE)] if revision else self.plan
                made = Planned(revision=revision, plan=Plan(steps=steps))
                failed = PlanFailed(revision=revision, error=AgentError(type="X", message="no"))
                held.inbox.append(
                    event(self.now, planned=made) if well else event(self.now, plan_failed=failed)
                )
            case RunStep(revision=revision, step_id=step_id):
                step_of_plan = state.steps[step_id].step
                agent, well = step_of_plan.agent, well and step_of_plan.task != FAILS
                status = SUCCEEDED if well else FAILED
                result = AgentResult(status=status, agent_name=agent, answer="done")
                body = StepFinished(
                    revision=revision, step_id=step_id, result=result, attempts=command.attempt
                )
                held.inbox.append(event(self.now, step_finished=body))
            case _:
                attempt = state.answer_attempt + 1
                started = event(self.now, answer_started=AnswerStarted(attempt=attempt))
                held.inbox.append(started)
                if not well:
                    return  # more of it another time
                response = composed_response(state, self.now, ComposerOutput(answer="done"))
                end = RunFinished(response=response)
                held.inbox.append(event(self.now, run_finished=end))
        held.ended.add(key)

    async def resume(self, owner: Owner, adopted: list[Adopted]) -> None:
        """Fold the run's log, say so in it, and take its inputs."""
        for each in adopted:
            if each.run_id != self.run_id:
                continue
            log = await self.runs.log(self.run_id)
            held = Held(each.epoch, fold(str(self.run_id), log))
            if held.state.finished:
                return
            owner.held = held
            reason = each.reason or LEASE_EXPIRED
            body = RunAdopted(replica_id=str(owner.ownership.replica_id), reason=reason)
            self.store(held, [event(self.now, run_adopted=body)])
            await self.send(owner, "arrives")
            if owner.held is held:
                await self.take_inputs(owner)

    async def take_inputs(self, owner: Owner) -> None:
        if owner.held is not None:
            for _, payload in await owner.ownership.inputs([self.run_id]):
                owner.held.inbox.append(LogEvent.FromString(payload))

    async def late_arrive(self) -> None:
        """Everything that is still under way arrives at the worst moment."""
        while self.late:
            await self.execute(self.late.pop())

    async def adopt(self, owner: Owner, *, dies: bool = False, late: bool = False) -> None:
        until = datetime.now(UTC) + timedelta(days=1)
        # Back-offs take no time here.
        await self.reader.execute("UPDATE runs SET retry_at = now() WHERE replica_id IS NULL")
        await owner.ownership.bury(until)
        adopted = await owner.ownership.adopt(9)
        if late:
            await self.late_arrive()
        if dies:
            await self.die(owner)
        else:
            await self.resume(owner, adopted)

    async def expire(self, replica_id: UUID) -> None:
        await self.reader.execute(
            "UPDATE replicas SET lease_until = now() - interval '1 ms' WHERE replica_id = $1",
            replica_id,
        )

    async def lose_lease(self, owner: Owner) -> None:
        owner.holds_lease = False  # its own clock is the stricter one
        await self.expire(owner.ownership.replica_id)

    async def retake(self, owner: Owner, *, late: bool = False) -> None:
        self.leave(owner)
        ours = await self.live(owner)
        if late:
            await self.late_arrive()
        await self.resume(owner, ours)

    def leave(self, owner: Owner) -> None:
        """The owner stops driving the run; what it has sent is still under way."""
        held, owner.held = owner.held, None
        if held is not None and held.sent:
            replica_id = owner.ownership.replica_id
            self.late.append(Late(owner.session, replica_id, held.sent))

    async def die(self, owner: Owner) -> None:
        self.leave(owner)
        await self.expire(owner.ownership.replica_id)
        owner.ownership = Ownership(self.pool, uuid4(), LEASE_S)
        await self.live(owner)

    async def drain(self, owner: Owner) -> None:
        if owner.held is not None and not owner.held.sent:
            body = RunReleased(replica_id=str(owner.ownership.replica_id), reason="drain")
            self.store(owner.held, [event(self.now, run_released=body)])
            await self.send(owner, "arrives")
        self.leave(owner)
        await owner.ownership.release_all()
        owner.ownership = Ownership(self.pool, uuid4(), LEASE_S)
        await self.live(owner)

    async def cancel(self, owner: Owner) -> None:
        body = CancelRequested(user_id="u", reason="enough")
        await owner.ownership.add_input(
            self.run_id, "cancel", event(self.now, cancel_requested=body)
        )
        self.cancelled = True

    async def read_elsewhere(self) -> None:
        """A client of another replica sees what is committed, acknowledged or not."""
        after = max(self.seen)
        page = await self.runs.events(self.run_id, after)
        if page:
            self.show(page[0][0], [each for _, each in page])

    async def check(self) -> RunState:
        """The contract, as far as the stored rows show it."""
        rows = await self.reader.fetch(
            "SELECT sequence, event_id, epoch, payload FROM run_events WHERE run_id = $1 "
            "ORDER BY sequence",
            self.run_id,
        )
        row = await self.reader.fetchrow("SELECT * FROM runs WHERE run_id = $1", self.run_id)
        log = await self.runs.log(self.run_id)
        state = fold(str(self.run_id), log)
        assert len(rows) == len(log)
        assert rows[-1]["sequence"] == len(rows), "a gap"
        assert len({each["event_id"] for each in rows}) == len(rows)
        epochs = [each["epoch"] for each in rows]
        assert epochs == sorted(epochs), "an earlier owner wrote behind a later one"
        assert epochs[-1] <= row["epoch"]
        assert row["status"] == state.status
        assert (row["finished_at"] is not None) == state.finished
        stored = {each["sequence"]: each["payload"] for each in rows}
        for sequence, payload in self.seen.items():
            there = stored.get(sequence)
            known = there is not None and LogEvent.FromString(there).SerializeToString(
                deterministic=True
            )
            assert known == payload, f"event {sequence} was taken back"
        cancels = [each for each in log if each.HasField("cancel_requested")]
        assert len(cancels) <= 1
        if cancels and state.finished:
            assert state.status == RUN_STATUS_CANCELLED
        if self.cancelled and not state.finished:
            assert await self.reader.fetchval(
                "SELECT count(*) FROM run_inputs WHERE run_id = $1", self.run_id
            )
        return state

    async def end(self) -> None:
        """All goes well from here on: the run must come to its one end."""
        for owner in self.owners:
            await self.die(owner)
        owner = self.owners[0]
        for _ in range(_ENDINGS):
            if (await self.check()).finished:
                break
            if owner.held is None:
                await self.adopt(owner)
            for key in list(owner.held.active) if owner.held else []:
                if owner.held is not None and key not in owner.held.ended:
                    self.answer(owner.held, key, well=True)
            await self.drive(owner, "arrives")
        state = await self.check()
        assert state.finished, "no end"
        for letter in self.late:
            await self.execute(letter)
        assert (await self.check()).last_sequence == state.last_sequence, "written behind the end"
        self.check_effects(state)

    def check_effects(self, state: RunState) -> None:
        """Of an ended run: the user was informed of all effects of an agent that may run once."""
        for done in state.result_steps:
            if done.step.agent == ONCE and self.executions[done.step.step_id]:
                error_type = done.result.error.type if done.result is not None else None
                # Its own result counts also if it was not shown before the step was sent again.
                finished = done.result is not None and not done.result.HasField("error")
                cut_off = state.status == RUN_STATUS_CANCELLED
                assert (
                    finished
                    or cut_off
                    or error_type
                    in {AgentErrorType.OUTCOME_UNKNOWN, AgentErrorType.DEADLINE_EXCEEDED}
                )

    async def forget(self) -> None:
        await self.reader.execute("DELETE FROM runs")
        await self.reader.execute("DELETE FROM replicas")
