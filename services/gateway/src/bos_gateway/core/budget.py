"""Token and step budget of a run: held before a call, settled after it. Pure.

Everything follows from the log alone. A dispatch and the start of composing say what they hold;
planning and classifying hold what :func:`for_planning` and :func:`for_classifying` say, by the
shares that were frozen into the run when it was accepted: another version of this code, with other
shares, counts the same of an old log. What was consumed counts as soon as it is reported, and what
will not be reported any more counts as if all that was held had been consumed: the model may have
been paid for it. So what is counted and held never exceeds the budget, as long as every call keeps
to what it was given (``bos_llm.budget`` sees to that); a call that does not is paid for by those
after it.
"""

from __future__ import annotations

from bos.common.v1 import Usage
from bos.runlog.v1 import RunSettings
from bos_gateway.core.run_state import AWAITING_APPROVAL, RunState

MAX_RUN_TOKENS = 10**12
"""Largest budget, so that every sum of budgets is a number that can be stored."""
# The shares as they are frozen into new runs.
# Kept for composing from the first call on, so that results of costly steps can still be put in
# words. The same part as of the run's time.
COMPOSE_SHARE = 0.2
# Most that one planning may take, so that one which is interrupted leaves enough for the work.
PLAN_SHARE = 0.25
# Kept for another attempt at a step while one is possible: the first may end without saying what it
# consumed.
RETRY_SHARE = 0.25
# The prompt of a step alone has hundreds of tokens; with less than this nothing comes of it.
MIN_STEP_TOKENS = 1000


def freeze_shares(settings: RunSettings) -> None:
    """Freeze the shares of a run's token budget into its settings, in place."""
    settings.plan_share, settings.compose_share = PLAN_SHARE, COMPOSE_SHARE
    settings.min_step_tokens = MIN_STEP_TOKENS


def counted(usage: Usage) -> int:
    """Tokens that count against a budget."""
    return usage.input_tokens + usage.output_tokens + usage.unreported_tokens


def held_by_steps(state: RunState) -> int:
    """Tokens held for steps under way."""
    return sum(step.reserved_tokens for step in state.steps.values())


def held_beside_steps(state: RunState) -> int:
    """Tokens held for planning, classifying and composing under way.

    Planning and classifying are taken to have begun: the log does not say.
    """
    planning = for_planning(state) if state.planning is not None else None
    return (planning or 0) + held_for_classifying(state) + state.answer_tokens


def held_for_classifying(state: RunState) -> int:
    """Tokens held for classifying instructions, of all steps together."""
    return (for_classifying(state) or 0) * _unclassified(state)


def left(state: RunState) -> int:
    """Tokens neither counted nor held; 0 also when more was consumed than there was."""
    used = counted(state.usage) + held_by_steps(state) + state.answer_tokens
    return max(0, state.request.settings.max_tokens - used)


def for_planning(state: RunState) -> int | None:
    """Token budget of a planning call that begins now; None without a limit.

    Another plan is of use only if a step of it can run.
    """
    settings = state.request.settings
    kept = settings.min_step_tokens if state.replanning is not None else 0
    share = int(settings.max_tokens * settings.plan_share)
    return min(share, max(0, _beside_composing(state) - kept)) if settings.max_tokens else None


def enough_for_revision(state: RunState) -> bool:
    """Whether the remaining tokens suffice for a revised plan and one of its steps."""
    settings = state.request.settings
    least = 2 * settings.min_step_tokens
    return not settings.max_tokens or _beside_composing(state) >= least


def for_composing(state: RunState) -> int | None:
    """Token budget of a composing call that begins now; None without a limit.

    At most half of what is left, once that is more than was kept for it: an attempt that is
    interrupted counts in full, and another one must remain possible.
    """
    rest = left(state)
    most = min(rest, max(_kept_for_composing(state), rest // 2))
    return most if state.request.settings.max_tokens else None


def for_classifying(state: RunState) -> int | None:
    """Token budget of classifying one step's instructions; None without a limit.

    It is one short call.
    """
    settings = state.request.settings
    share = _beside_composing(state) // max(1, _unclassified(state))
    return min(share, settings.min_step_tokens) if settings.max_tokens else None


def for_attempt(rest: int, retries_left: int) -> int:
    """Token budget of one attempt at a step, of the ``rest`` of what is held for the step."""
    rest = max(0, rest)
    return rest - int(rest * RETRY_SHARE) if retries_left > 0 else rest


def turns_left(state: RunState) -> int | None:
    """Steps that may still be dispatched; None without a limit in the request."""
    request = state.request.request
    return max(0, request.max_turns - state.turns) if request.HasField("max_turns") else None


def steps_left(state: RunState) -> int:
    """Steps that a plan may have now: those of earlier revisions that were run count as well."""
    return max(0, state.request.settings.max_steps - state.turns)


class StepBudget:
    """Tokens for the steps that are dispatched at one moment.

    Everybody who still needs tokens is given the same share of what is left; what a step does not
    consume comes back when it ends, and the shares of those after it grow.
    """

    def __init__(self, state: RunState) -> None:
        self.limit = state.request.settings.max_tokens
        self.least = state.request.settings.min_step_tokens
        self.available = _beside_composing(state) - held_for_classifying(state)
        steps = [step for step in state.steps.values() if not step.settled]
        self._waiting = sum(
            step.sub_task is None or step.interrupted or step.status == AWAITING_APPROVAL
            for step in steps
        )
        self._at_work = any(
            (step.running and not step.interrupted) or step.unclassified for step in steps
        )

    @property
    def enough(self) -> bool:
        """Whether there are tokens for one more step."""
        return not self.limit or self.available >= self.least

    @property
    def exhausted(self) -> bool:
        """Whether no running step could still free tokens."""
        return not self._at_work

    def reserve(self) -> int | None:
        """Tokens to hold for one more step: 0 without a budget, None if there are too few now."""
        if not self.limit:
            return 0
        if not self.enough:
            return None
        share = max(self.least, self.available // max(1, self._waiting))
        self.available -= share
        self._waiting -= 1
        self._at_work = True
        return share


def _unclassified(state: RunState) -> int:
    return sum(step.unclassified for step in state.steps.values())


def _beside_composing(state: RunState) -> int:
    return max(0, left(state) - _kept_for_composing(state))


def _kept_for_composing(state: RunState) -> int:
    settings = state.request.settings
    return int(settings.max_tokens * settings.compose_share)
