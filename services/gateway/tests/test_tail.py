"""What is kept until it is on disk: never too little, and not for long."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from bos.gateway.v1 import RUN_STATUS_COMPOSING, RUN_STATUS_PLANNED, RunStatus
from bos.runlog.v1 import CancelRequested, LogEvent
from bos_gateway.run_log import Append
from bos_gateway.tail import UnflushedTail, chunks

RUNS = [UUID(int=number) for number in range(3)]


def append(
    run: int, first: int, events: int = 1, *, epoch: int = 1, status: RunStatus | None = None
) -> Append:
    numbers = range(first, first + events)
    deltas = [LogEvent(cancel_requested=CancelRequested(reason=str(n))) for n in numbers]
    return Append(RUNS[run], epoch, first, deltas, durable=False, status=status)


def kept(tail: UnflushedTail) -> set[tuple[UUID, int]]:
    return {(row.run_id, row.sequence) for run in tail.by_run() for row in run.rows}


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=60))
def test_what_is_not_on_disk_is_always_kept(steps: list[tuple[int, bool, bool]]) -> None:
    """A write-ahead log in small: each statement sees its ends, then commits behind them."""
    tail = UnflushedTail(limit=10_000)
    end = flushed = 0
    positions: dict[tuple[UUID, int], int] = {}
    sequences = [1, 1, 1]
    for run, background_flush, durable in steps:
        if background_flush:
            flushed = end
        end += 10  # other sessions write as well
        tail.observed(end, flushed)
        sequences[run] += 1
        end += 10
        positions[RUNS[run], sequences[run]] = end
        if durable:
            flushed = end
            tail.flushed()
        else:
            tail.committed([append(run, sequences[run])])
        unflushed = {key for key, position in positions.items() if position > flushed}
        assert unflushed <= kept(tail)
        assert len(tail) == len(kept(tail))
    # Two statements later nothing that is on disk by now is left.
    for _ in range(2):
        tail.observed(end + 10, end + 10)
    assert len(tail) == 0


def test_events_of_a_run_come_back_in_order_with_their_own_epochs_and_the_last_status() -> None:
    tail = UnflushedTail(limit=100)
    tail.committed([append(0, 2, 2, status=RUN_STATUS_PLANNED), append(1, 7)])
    tail.committed([append(0, 4, epoch=3, status=RUN_STATUS_COMPOSING)])
    tail.committed([append(0, 5, epoch=3)])
    first, second = tail.by_run()
    assert [(row.sequence, row.epoch) for row in first.rows] == [(2, 1), (3, 1), (4, 3), (5, 3)]
    assert (first.run_id, first.epoch, first.status) == (RUNS[0], 3, RUN_STATUS_COMPOSING)
    assert (second.run_id, second.epoch, second.status) == (RUNS[1], 1, None)


def test_full_tail_says_so_until_something_waited_for_the_disk() -> None:
    tail = UnflushedTail(limit=3)
    tail.committed([append(0, 2, 2)])
    assert not tail.full
    tail.committed([append(1, 2)])
    assert tail.full
    tail.flushed()
    assert not tail.full
    assert not tail.by_run()


def test_chunks_never_split_a_run() -> None:
    tail = UnflushedTail(limit=100)
    tail.committed([append(0, 2, 5), append(1, 2, 1), append(2, 2, 1)])
    sizes = [[len(run.rows) for run in chunk] for chunk in chunks(tail.by_run(), 2)]
    assert sizes == [[5], [1, 1]]
    assert not list(chunks([], 2))
