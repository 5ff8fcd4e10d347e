"""``bos feedback``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import click

from bos.gateway.v1 import FeedbackRating, FeedbackReason, RunFeedback
from bos_cli.session import ANSWERED, print_json, run
from bos_client.feedback import FeedbackClient
from bos_client.text import one_line

if TYPE_CHECKING:
    from bos_cli.session import Target

_RATINGS: Final = {
    "up": FeedbackRating.FEEDBACK_RATING_UP,
    "down": FeedbackRating.FEEDBACK_RATING_DOWN,
}
_NONE: Final = "none"
_PREFIX: Final = "FEEDBACK_REASON_"
_REASONS: Final = {
    name.removeprefix(_PREFIX).lower(): cast("FeedbackReason", FeedbackReason.Value(name))
    for name in FeedbackReason.keys()[1:]
}


@click.command()
@click.argument("run_id")
@click.argument("rating", type=click.Choice([*_RATINGS, _NONE]))
@click.option(
    "--reason",
    "reasons",
    type=click.Choice(list(_REASONS)),
    multiple=True,
    help="What is good or bad about the answer; may be repeated.",
)
@click.option("--note", default="", help="In your own words, 2000 characters at most.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
@click.pass_obj
def feedback(
    target: Target, run_id: str, rating: str, reasons: tuple[str, ...], note: str, as_json: bool
) -> None:
    """Say what you think of the answer of a run: up, down, or none to take it back."""
    if rating == _NONE and (reasons or note):
        raise click.UsageError("--reason and --note do not go with none, which takes all back.")

    async def work() -> int:
        connection = target.connection()
        async with FeedbackClient(
            connection.target, api_key=connection.api_key, tokens=connection.tokens
        ) as client:
            if rating == _NONE:
                await client.take_back(run_id)
                stored = RunFeedback()
            else:
                chosen = [_REASONS[each] for each in dict.fromkeys(reasons)]
                stored = await client.give(run_id, _RATINGS[rating], chosen, note)
        if as_json:
            print_json(stored)
        else:
            click.echo(feedback_line(stored) or "Taken back.")
        return ANSWERED

    run(work(), as_json=as_json)


def feedback_line(given: RunFeedback) -> str:
    """Feedback on one line; empty if there is none."""
    ratings = {number: name for name, number in _RATINGS.items()}
    if given.rating not in ratings:
        return ""
    reasons = ", ".join(
        FeedbackReason.Name(each).removeprefix(_PREFIX).lower() for each in given.reasons
    )
    parts = (f"Feedback: {ratings[given.rating]}", reasons, one_line(given.note))
    return "; ".join(part for part in parts if part)
