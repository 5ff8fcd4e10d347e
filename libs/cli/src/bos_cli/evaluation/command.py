"""``bos eval``: asks the questions of a set, and compares two evaluations."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from bos_cli.commands.overviews import make_grid
from bos_cli.evaluation.benchmarks import read_benchmark
from bos_cli.evaluation.comparing import changes, read_report, totals
from bos_cli.evaluation.pages import by_kind, cost_text, grader_text, page_of, passed_text
from bos_cli.evaluation.questions import QuestionSet, read_set
from bos_cli.evaluation.running import ask_all, report_of
from bos_cli.render import make_console
from bos_cli.session import ANSWERED, FAILED, client_for, report, run
from bos_client.text import one_line
from bos_errors import BosError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_cli.evaluation.grader import Grader
    from bos_cli.evaluation.grading import Verdict
    from bos_cli.evaluation.running import Graded
    from bos_cli.session import Target

_SHOWN_CHARS = 100
_MARKS: dict[Verdict, str] = {
    "passed": "passed",
    "failed": "FAILED",
    "not_graded": "not graded",
    "error": "GRADER FAILED",
}


@click.command("eval")
@click.argument("path", required=False, type=click.Path(path_type=Path), metavar="[SET]")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="BEFORE AFTER",
    help="Instead of asking: what changed between two files of --json-file.",
)
@click.option("--kind", "kinds", multiple=True, help="Only questions of this kind; repeatable.")
@click.option("--id", "ids", multiple=True, help="Only the question with this id; repeatable.")
@click.option("--limit", type=click.IntRange(1), help="Most questions to ask, evenly of the set.")
@click.option(
    "--at-once",
    type=click.IntRange(1, 32),
    default=2,
    show_default=True,
    help="Questions asked at a time.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 3600),
    default=180.0,
    show_default=True,
    help="Time of one question, in seconds.",
)
@click.option("--model", default="", metavar="NAME", help="Model that answers; see `bos agents`.")
@click.option(
    "--grader-model",
    envvar="BOS_EVAL_GRADER_MODEL",
    help="Model that grades by criteria; without it they are not graded."
    "  [env: BOS_EVAL_GRADER_MODEL]",
)
@click.option(
    "--grader-url",
    envvar="BOS_EVAL_GRADER_URL",
    help="Its OpenAI-compatible endpoint, with the key of BOS_EVAL_GRADER_API_KEY; else that of"
    " OPENAI_BASE_URL, OPENAI_API_KEY.  [env: BOS_EVAL_GRADER_URL]",
)
@click.option(
    "--grader-price",
    nargs=2,
    type=click.FloatRange(0),
    metavar="INPUT OUTPUT",
    help="US dollars per million tokens of it, for the cost of grading.",
)
@click.option(
    "--grader-timeout",
    "grader_timeout_s",
    type=click.FloatRange(1, 600),
    default=60.0,
    show_default=True,
    help="Time of one verdict, in seconds.",
)
@click.option("--json-file", type=click.Path(path_type=Path), help="Write the results as JSON.")
@click.option("--html-file", type=click.Path(path_type=Path), help="Write them as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
@click.pass_obj
def evaluate(
    target: Target,
    path: Path | None,
    compare: tuple[Path, Path] | None,
    kinds: Sequence[str],
    ids: Sequence[str],
    limit: int | None,
    at_once: int,
    timeout_s: float,
    model: str,
    grader_model: str | None,
    grader_url: str | None,
    grader_price: tuple[float, float] | None,
    grader_timeout_s: float,
    json_file: Path | None,
    html_file: Path | None,
    as_json: bool,
) -> None:
    """Ask the questions of SET, and grade the answers by its rules.

    SET is a YAML file, or a .json file of BIRD or Spider beside its databases. Exits with 0 if none
    failed. Nothing that waits for an approval is approved. A model grades by the criteria of the
    set if one is named, and not otherwise.
    """
    if (path is None) == (compare is None):
        raise click.UsageError("Name a set, or two evaluations with --compare.")
    try:
        if compare is not None:
            code = _compare(*compare, as_json=as_json)
            raise SystemExit(code)
        assert path is not None, "without --compare there is a set"
        questions = _chosen(_read(path), kinds, ids, limit)
        grader = _grader(grader_model, grader_url, grader_price, grader_timeout_s)
    except BosError as error:
        raise SystemExit(report(error, as_json=as_json)) from None

    async def work() -> int:
        async with client_for(target.connection()) as bos, grader or nullcontext():
            results = await ask_all(
                bos,
                questions,
                at_once=at_once,
                timeout_s=timeout_s,
                model=model,
                done=(lambda _: None) if as_json else _show,
                grader=grader,
            )
        found = report_of(questions, results, grader.model if grader else "")
        if json_file is not None:
            _write(json_file, json.dumps(found, ensure_ascii=False, indent=2) + "\n")
        if html_file is not None:
            _write(html_file, page_of(found))
        if as_json:
            click.echo(json.dumps(found, ensure_ascii=False, indent=2))
        else:
            _show_totals(found)
        failed = any(each.verdict in ("failed", "error") for each in results)
        return FAILED if failed else ANSWERED

    run(work(), as_json=as_json)


def _read(path: Path) -> QuestionSet:
    return read_benchmark(path) if path.suffix == ".json" else read_set(path)


def _grader(
    model: str | None, url: str | None, price: tuple[float, float] | None, timeout_s: float
) -> Grader | None:
    """The grader that the options name; None where they name no model."""
    if not model:
        return None
    # Its client takes half a second to import, which only those wait for who want it.
    from bos_cli.evaluation.grader import Grader, GraderSettings

    return Grader(
        GraderSettings.of(os.environ, base_url=url, model=model, price=price, timeout_s=timeout_s)
    )


def _chosen(
    questions: QuestionSet, kinds: Sequence[str], ids: Sequence[str], limit: int | None
) -> QuestionSet:
    """The questions that the options name; of too many, every n-th."""
    kept = [
        each
        for each in questions.questions
        if (not kinds or each.kind in kinds) and (not ids or each.id in ids)
    ]
    if not kept:
        raise InvalidArgument("No question of the set has that kind and id.")
    if limit is not None and len(kept) > limit:
        kept = [kept[place * len(kept) // limit] for place in range(limit)]
    return questions.model_copy(update={"questions": kept})


def _show(result: Graded) -> None:
    """One line for a question, and one for each rule that is broken or criterion not met."""
    outcome = result.outcome
    console = make_console()
    console.print(
        Text(
            f"{_MARKS[result.verdict]}  {result.question.id}  {', '.join(outcome.agents)}  "
            f"{outcome.calls} calls, {outcome.tokens} tokens, {outcome.seconds} s",
            style="red" if result.verdict in ("failed", "error") else "",
        )
    )
    for check in result.checks:
        if check.verdict == "not_graded":
            criterion = one_line(check.expected, _SHOWN_CHARS)
            console.print(Text(f"        {check.name}, not graded: {criterion}"))
        elif not check.passed:
            console.print(Text(f"        {check.name}: {one_line(check.found, _SHOWN_CHARS)}"))
            console.print(Text(f"        expected: {one_line(check.expected, _SHOWN_CHARS)}"))


def _show_totals(found: dict[str, Any]) -> None:
    console = make_console()
    grid = make_grid("kind", "passed", "asked")
    for kind, (passed, asked) in by_kind(found).items():
        grid.add_row(Text(one_line(kind)), str(passed), str(asked))
    console.print(grid)
    sums = found["totals"]
    console.print(
        Text(
            f"{passed_text(sums)}; {sums['calls']} model calls, "
            f"{sums['tokens']} tokens, {cost_text(sums['cost_micros'])}, {sums['seconds']} s"
        )
    )
    if grading := grader_text(found):
        console.print(Text(grading))
    elif sums["not_graded"]:
        console.print(Text("criteria are graded by a model only: name one with --grader-model"))


def _compare(before: Path, after: Path, *, as_json: bool) -> int:
    """Print what changed; the exit code says whether a question broke."""
    first, second = read_report(before), read_report(after)
    found, sums = changes(first, second), totals(first, second)
    broken = any(change.verdict == "broken" for change in found)
    if as_json:
        content = {
            "changes": [asdict(change) for change in found],
            "totals": {name: {"before": old, "after": new} for name, old, new in sums},
        }
        click.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return FAILED if broken else ANSWERED
    console = make_console()
    for change in found:
        verdict = f"{change.verdict.upper()}  " if change.verdict else ""
        console.print(Text(f"{verdict}{change.question_id}: {change.what}"))
        console.print(Text(f"  - {one_line(change.before, _SHOWN_CHARS)}"))
        console.print(Text(f"  + {one_line(change.after, _SHOWN_CHARS)}"))
    if not found:
        console.print("nothing changed")
    grid = make_grid("total", "before", "after")
    for name, old, new in sums:
        grid.add_row(Text(name), Text(old), Text(new))
    console.print(grid)
    return FAILED if broken else ANSWERED


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}.") from error
