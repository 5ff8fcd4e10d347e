"""The contract of runs, checked: what is stored, what clients saw, and what agents did.

* An accepted run ends exactly once.
* A completed step never runs again.
* An effect is never doubled silently.
* What a client has seen is never taken back except by AnswerStarted.
* Nothing acknowledged is lost.
* Every log can be read, and no run fails for what another one does.
* No sequence has a gap or a duplicate; a client that reconnects elsewhere behind its last sequence
  misses nothing and sees nothing twice.

After any faults of gateways and database: once every client has its end, all of this holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any

from google.protobuf.message import DecodeError

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED
from bos.gateway.v1 import RUN_STATUS_CANCELLED, RUN_STATUS_FAILED
from bos.runlog.v1 import LogEvent
from bos_errors import AgentErrorType
from bos_gateway.core.fold import fold
from bos_gateway.core.public_events import project, visible_response
from bos_gateway.core.run_state import BrokenLog
from bos_gateway.ownership.poison import OWNERS_DIED
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from gateway_harness.streamed import answer_text, logged

MISCHIEF = "mischief"
"""In a question: its own agents or its plan misbehave; it must end all the same, but may fail."""
POISON = "poison"
"""In a question: it kills its owners, and may be given up."""
ENDS_OTHERWISE = ("may it", "no plan")
"""In questions: people decide about it, or it cannot be planned; such a run may fail."""
# Two processes on one machine, one of which goes by the database's clock.
_SAME_MOMENT_S = 0.1


@dataclass(frozen=True, slots=True)
class Execution:
    step_key: str
    attempt: int
    at: float
    """Seconds since 1970."""


@dataclass(slots=True)
class Seen:
    request_id: str
    events: list[Any] = field(default_factory=list)
    """Over all its streams, in order."""
    response: Any = None
    """Of a unary call."""
    cancelled: bool = False
    """A request to cancel was acknowledged before the end was seen."""


@dataclass(slots=True)
class Verdict:
    """What was found wrong, and how much was looked at."""

    runs: int = 0
    events: int = 0
    lost: list[str] = field(default_factory=list)
    """Runs without an end, events or requests that were acknowledged and are gone, gaps."""
    doubled: list[str] = field(default_factory=list)
    """Second ends, finished steps that ran again, effects and events that came twice."""
    late: list[str] = field(default_factory=list)
    """Attempts that a frozen owner began after its successor had the step's result: they end with
    the freeze, their results count nowhere, and their effects are known by their keys."""
    innocent_failed: list[str] = field(default_factory=list)
    """Runs that ended FAILED though nothing was wrong about them."""
    unknown: int = 0
    """Steps whose outcome is unknown, and said to be."""

    @property
    def broken(self) -> list[str]:
        return [*self.lost, *self.doubled, *self.innocent_failed]


@dataclass(slots=True)
class StoredRun:
    run_id: str
    request_id: str
    finished: bool
    events: list[LogEvent]
    sequences: list[int]

    @property
    def request(self) -> Any:
        return self.events[0].run_accepted.request


async def stored_runs(dsn: str) -> dict[str, StoredRun]:
    """Every run of the database, by request id."""
    async with connect(dsn, schema=SCHEMA) as connection:
        runs = await connection.fetch("SELECT run_id, request_id, finished_at FROM runs")
        rows = await connection.fetch(
            "SELECT run_id, sequence, payload FROM run_events ORDER BY run_id, sequence"
        )
    events: dict[Any, list[tuple[int, bytes]]] = defaultdict(list)
    for row in rows:
        events[row["run_id"]].append((row["sequence"], row["payload"]))
    return {
        run["request_id"]: StoredRun(
            str(run["run_id"]),
            run["request_id"],
            run["finished_at"] is not None,
            [_parsed(payload) for _, payload in events[run["run_id"]]],
            [sequence for sequence, _ in events[run["run_id"]]],
        )
        for run in runs
    }


def _parsed(payload: bytes) -> LogEvent:
    """The event; one without any kind if it cannot be read."""
    try:
        return LogEvent.FromString(payload)
    except DecodeError:
        return LogEvent()


async def check_contract(
    dsn: str,
    seen: Sequence[Seen],
    witnesses: Sequence[Any],
    same: Callable[[Any, Any], bool] = eq,
) -> Verdict:
    """Check every stored run, every client and every agent.

    Args:
        dsn: The gateways' database.
        seen: All clients; every run is some client's.
        witnesses: The agents, with ``executions``, what ``landed`` by step key, and whether that is
            ``repeatable``. Each step of a run belongs to one of them.
        same: Whether what a client was shown is what this version would show; ``versions.agrees``
            where another version showed some of it.
    """
    runs = await stored_runs(dsn)
    verdict = Verdict(runs=len(runs))
    for run in runs.values():
        verdict.events += len(run.events)
        if all(event.WhichOneof("event") for event in run.events):
            _check_log(run, verdict)
        else:
            verdict.lost.append(f"{run.request_id}: its log cannot be read")
            run.events.clear()
    for client in seen:
        stored = runs.get(client.request_id)
        if stored is None:
            verdict.lost.append(f"{client.request_id}: acknowledged, not stored")
        elif stored.events:
            _check_client(client, stored, verdict, same)
    unrequested = runs.keys() - {client.request_id for client in seen}
    verdict.doubled += [f"{request_id}: unrequested run" for request_id in unrequested]
    logs = {run.run_id: run for run in runs.values()}
    for witness in witnesses:
        _check_witness(witness, logs, verdict)
    return verdict


def _check_log(run: StoredRun, verdict: Verdict) -> None:
    """Sequences without gap, acceptance first, one end last, and a fold that makes sense."""
    name = run.request_id
    kinds = [event.WhichOneof("event") or "" for event in run.events]
    if run.sequences != list(range(1, len(run.sequences) + 1)):
        verdict.lost.append(f"{name}: sequences {run.sequences}")
    if not kinds or kinds[-1] != "run_finished" or not run.finished:
        verdict.lost.append(f"{name}: no end, but {kinds[-3:]}, finished={run.finished}")
    if kinds[:1] != ["run_accepted"] or kinds.count("run_accepted") != 1:
        verdict.lost.append(f"{name}: accepted {kinds.count('run_accepted')} times, {kinds[:3]}")
    if kinds.count("run_finished") > 1:
        verdict.doubled.append(f"{name}: ended {kinds.count('run_finished')} times")
    planned = Counter(
        getattr(event, kind).revision
        for event, kind in zip(run.events, kinds, strict=True)
        if kind in {"planned", "plan_failed"}
    )
    if any(count > 1 for count in planned.values()):
        verdict.doubled.append(f"{name}: planned twice, {dict(planned)}")
    if run.events[-1:]:
        _check_end(run, verdict)
    try:
        fold(run.run_id, run.events)
    except BrokenLog as error:
        verdict.doubled.append(f"{name}: {error}")
    finished: set[tuple[int, str]] = set()
    succeeded: set[str] = set()
    dispatched: set[tuple[int, str, int]] = set()
    for event in run.events:
        if event.HasField("step_dispatched"):
            step = event.step_dispatched
            if (step.revision, step.step_id) in finished or step.step_id in succeeded:
                verdict.doubled.append(f"{name}: {step.step_id} sent again after its end")
            if (step.revision, step.step_id, step.attempt) in dispatched:
                verdict.doubled.append(f"{name}: {step.step_id} attempt {step.attempt} sent twice")
            dispatched.add((step.revision, step.step_id, step.attempt))
        elif event.HasField("step_finished"):
            done = event.step_finished
            finished.add((done.revision, done.step_id))
            if done.result.status == AGENT_EXECUTION_STATUS_SUCCEEDED:
                succeeded.add(done.step_id)
            verdict.unknown += (
                event.step_finished.result.error.type == AgentErrorType.OUTCOME_UNKNOWN
            )


def _check_end(run: StoredRun, verdict: Verdict) -> None:
    """Who did nothing wrong is neither given up nor fails."""
    response = run.events[-1].run_finished.response
    if POISON in run.request.question:
        return
    if response.error.type == OWNERS_DIED:
        verdict.lost.append(f"{run.request_id}: given up, {run.request.question!r}")
    if any(event.HasField("approval_resolved") for event in run.events):
        return  # a decision, or none in time, may be the reason
    # With people in it, it may be theirs to let it fail; with a plan that fails, its planner's.
    guilty = (MISCHIEF, *ENDS_OTHERWISE)
    if response.status == RUN_STATUS_FAILED and not any(w in run.request.question for w in guilty):
        verdict.innocent_failed.append(f"{run.request_id}: {response.error.type} {response.answer}")


def _check_client(
    client: Seen, run: StoredRun, verdict: Verdict, same: Callable[[Any, Any], bool]
) -> None:
    """Exactly the stored events, as they are shown, each once and in order."""
    name = client.request_id
    request = run.request
    if client.response is not None:
        final = visible_response(run.events[-1].run_finished.response, request)
        if not same(client.response, final):
            verdict.lost.append(f"{name}: answered something that is not stored")
        return
    shown = [
        public
        for sequence, event in zip(run.sequences, run.events, strict=True)
        if (public := project(run.run_id, sequence, event, request)) is not None
    ]
    seen = logged(client.events)
    if len(seen) != len(shown) or not all(map(same, seen, shown)):
        sequences = [event.sequence for event in seen]
        counts = Counter(sequences)
        twice = sorted(sequence for sequence, count in counts.items() if count > 1)
        missed = sorted({event.sequence for event in shown} - counts.keys())
        known = {event.sequence: event for event in shown}
        gone = [
            event.sequence
            for event in seen
            if event.sequence not in known or not same(event, known[event.sequence])
        ]
        if twice or sequences != sorted(sequences):
            verdict.doubled.append(f"{name}: seen twice {twice}, order {sequences}")
        if missed or gone:
            verdict.lost.append(f"{name}: missed {missed}, seen but not stored {gone}")
    if client.events:
        _check_answer(client, verdict)
    cancels = sum(event.HasField("cancel_requested") for event in run.events)
    if cancels > 1:
        verdict.doubled.append(f"{name}: cancelled {cancels} times")
    ended = run.events[-1].run_finished.response.status
    if client.cancelled and (ended != RUN_STATUS_CANCELLED or cancels != 1):
        verdict.lost.append(f"{name}: cancel acknowledged, but {cancels} stored, status {ended}")


def _check_answer(client: Seen, verdict: Verdict) -> None:
    """The text of the last attempt is how the answer begins; what came before it is void."""
    attempts = [e.answer_started.attempt for e in client.events if e.HasField("answer_started")]
    if attempts != sorted(set(attempts)):
        verdict.doubled.append(f"{client.request_id}: answer started twice")
    try:
        text = answer_text(client.events)
    except AssertionError as error:
        verdict.doubled.append(f"{client.request_id}: text twice, void or missing, {error}")
        return
    response = client.events[-1].run_finished.response
    if response.status not in {RUN_STATUS_CANCELLED, RUN_STATUS_FAILED} and (
        not response.answer.startswith(text)
    ):
        verdict.lost.append(f"{client.request_id}: {text!r} became {response.answer!r}")


def _check_witness(witness: Any, runs: dict[str, StoredRun], verdict: Verdict) -> None:
    """What may not be repeated was in the log first, and nothing came after the step's end.

    What may be is sent while its dispatch is on its way to the log, so an attempt comes again with
    the next owner if that was lost on the way.
    """
    arrived = Counter((each.step_key, each.attempt) for each in witness.executions)
    owners: Counter[str] = Counter()
    sent: Counter[tuple[str, int]] = Counter()
    ended_at: dict[str, float] = {}
    succeeded: set[str] = set()
    for run_id, run in runs.items():
        for event in run.events:
            if event.HasField("step_dispatched"):
                step = event.step_dispatched
                sent[f"{run_id}/{step.revision}/{step.step_id}", step.attempt] += 1
            elif event.HasField("step_finished"):
                done = event.step_finished
                key = f"{run_id}/{done.revision}/{done.step_id}"
                ended_at[key] = event.create_time.ToNanoseconds() / 1e9
                if done.result.status == AGENT_EXECUTION_STATUS_SUCCEEDED:
                    succeeded.add(key)
            elif event.HasField("run_adopted"):
                owners[run_id] += 1
    for (key, attempt), times in arrived.items():
        found = sent[key, attempt]
        if found > 1 or (found < 1 and not witness.repeatable):
            verdict.doubled.append(f"{key} attempt {attempt}: {found} dispatches in the log")
        if times > 1 + (owners[key.partition("/")[0]] if witness.repeatable else 0):
            verdict.doubled.append(f"{key} attempt {attempt} came {times} times")
    for each in witness.executions:
        if each.at > ended_at.get(each.step_key, each.at) + _SAME_MOMENT_S:
            verdict.late.append(str(each))
    for key in {key for key, _ in arrived} & succeeded:
        if not witness.landed[key]:
            verdict.lost.append(f"{key}: succeeded without its effect")
    if not witness.repeatable:
        verdict.doubled += [f"{key}: {n} effects" for key, n in witness.landed.items() if n > 1]
