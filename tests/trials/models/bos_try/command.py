"""The command: which model, which questions, and what counts as passed."""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bos_chassis.concurrency.loop import new_event_loop
from bos_chassis.telemetry import Telemetry
from bos_demo.questions import Question, load_questions
from bos_errors import BosError, ConfigurationError
from bos_llm import ModelSettings
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

from .asking import Asker, facts_of
from .calls import OK, calls_of
from .judge import Outcome
from .report import line, summary, table, write_json
from .servers import (
    MODEL,
    ROOT,
    forget_models,
    litellm,
    llama,
    slow_settings,
    still_generating,
)

OUTPUT = ROOT / ".data/try-model.json"
CONFIGURED, SCRIPTED, LLAMA, LITELLM = "configured", "scripted", "llama", "litellm"

FEW = ("top-five-customers", "compound-interest", "what-can-you-do")
"""Default questions for a model on a CPU, which takes minutes for each."""

_PATIENCE_S = 30.0
_WHAT_TO_SET = (
    "No model is configured. Set OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL, here or in .env "
    "(docs/models.md has a block for each provider); or MODEL=llama for a small real model of our "
    "own, MODEL=litellm for the same behind LiteLLM, MODEL=scripted for the demo's scripted model."
)


@dataclass
class Tried:
    """What came of it."""

    model: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    abandoned: int | None = None
    """Abandoned generations of our own server; None if not known."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, tell, and return the exit code: 0 passed, 1 not passed, 2 nothing could be tried."""
    options = _options(arguments)
    tried = Tried()
    try:
        questions = _chosen(options)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_try(options, questions, tried))
    except BosError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("Interrupted.", file=sys.stderr)
        return 2
    finally:
        if tried.outcomes:
            _tell(options, tried)
    return _exit_code(options, tried)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="try-model", description=__doc__)
    parser.add_argument(
        "--model",
        choices=(CONFIGURED, SCRIPTED, LLAMA, LITELLM),
        default=CONFIGURED,
        help="whose answers; default: what the environment or .env configures",
    )
    parser.add_argument(
        "--questions",
        default="",
        help="ids, separated by commas; default: all, of our own servers a few",
    )
    parser.add_argument("--limit", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--wire", action="store_true", help="judge the wire and not the answers")
    parser.add_argument(
        "--at-least", type=float, default=0, help="percent of answers that must be right"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the JSON goes")
    options = parser.parse_args(arguments)
    options.output = options.output.resolve()
    # A model with 135 million parameters cannot answer.
    options.wire = options.wire or options.model in (LLAMA, LITELLM)
    return options


def _chosen(options: argparse.Namespace) -> list[Question]:
    known = {question.id: question for question in load_questions()}
    few = options.model in (LLAMA, LITELLM) and not options.limit
    all_of_them = FEW if few else tuple(known)
    wanted = [each.strip() for each in options.questions.split(",") if each.strip()] or all_of_them
    if unknown := [each for each in wanted if each not in known]:
        raise ConfigurationError(
            f"There is no demo question {', '.join(unknown)}; there are {', '.join(known)}."
        )
    return [known[each] for each in wanted][: options.limit or None]


async def _try(options: argparse.Namespace, questions: list[Question], tried: Tried) -> None:
    main = asyncio.current_task()
    assert main is not None
    # Ctrl-C is seen to already; what was started ends in order either way.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    telemetry = Telemetry.for_tests("try-model")
    async with AsyncExitStack() as stack:
        stack.callback(_write_log, options.output.with_suffix(".log"), telemetry)
        # A folder of its own each time: what an earlier try left in memory would be in the prompts.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bos-try-")))
        server = await _model(options, folder, stack)
        settings = StandaloneSettings.load(
            data_dir=folder / "data", rest=False, port=0, demo_documents=False
        )
        facts = await facts_of(questions, folder / "reference")
        product = await stack.enter_async_context(serve_all(settings, telemetry))
        asker = await stack.enter_async_context(Asker.of(product, telemetry))
        tried.model = product.model
        print(f"Asking {len(questions)} questions of {product.model}.", flush=True)
        try:
            for question in questions:
                outcome = await asker.ask(question, facts[question.id])
                tried.outcomes.append(outcome)
                print(line(outcome), flush=True)
            if server:
                tried.abandoned = await still_generating(server, _PATIENCE_S)
        finally:
            _complete(tried, telemetry)


async def _model(options: argparse.Namespace, folder: Path, stack: AsyncExitStack) -> str:
    """Configure the model; returns the address of the llama.cpp server, if it is one of ours."""
    if options.model == CONFIGURED:
        _require_model()
        return ""
    forget_models()
    # A .env beside the project must not choose another model for some agent.
    os.chdir(folder)
    if options.model == SCRIPTED:
        return ""
    server = await stack.enter_async_context(llama(options.output.parent))
    url, key, provider = f"{server}/v1", "", "llamacpp"
    if options.model == LITELLM:
        proxy, key = await stack.enter_async_context(
            litellm(options.output.parent, "litellm.yaml", LLAMA_URL=url)
        )
        url, provider = f"{proxy}/v1", "litellm"
    for name, value in slow_settings().items():
        os.environ.setdefault(name, value)
    os.environ |= {"BOS_MODEL": MODEL, "OPENAI_BASE_URL": url, "BOS_MODEL_PROVIDER": provider}
    if key:
        os.environ["OPENAI_API_KEY"] = key
    return server


def _require_model() -> None:
    settings = ModelSettings.load()
    if settings.missing("", settings.get_agent_model_config("")):
        raise ConfigurationError(_WHAT_TO_SET)


def _complete(tried: Tried, telemetry: Telemetry) -> None:
    """Add calls that went on when their run had ended, such as memory's."""
    ends = [outcome.since_ns for outcome in tried.outcomes[1:]] + [None]
    spans = telemetry.spans
    tried.outcomes[:] = [
        replace(outcome, calls=calls_of(spans, outcome.since_ns, end))
        for outcome, end in zip(tried.outcomes, ends, strict=False)
    ]


def _write_log(path: Path, telemetry: Telemetry) -> None:
    """What the services said, one JSON object a line."""
    with path.open("w", encoding="utf-8") as file:
        for entry in telemetry.logs:
            file.write(json.dumps(entry, default=str) + "\n")


def _tell(options: argparse.Namespace, tried: Tried) -> None:
    about: dict[str, Any] = {"asked_of": options.model, "still_generating": tried.abandoned}
    write_json(options.output, tried.model, about, tried.outcomes)
    print(f"\n{table(tried.outcomes)}\n\n{summary(tried.outcomes)}")
    if tried.abandoned:
        print(f"Still generating without a reader: {tried.abandoned}.")
    print(f"Details: {options.output}")


def _exit_code(options: argparse.Namespace, tried: Tried) -> int:
    broken = [outcome.question_id for outcome in tried.outcomes if outcome.broken]
    if broken:
        print(f"Not passed: {', '.join(broken)} broke what no model may break; see above.")
        return 1
    if options.wire:
        return _wire_code(tried)
    right = sum(outcome.judgement.verdict == "right" for outcome in tried.outcomes)
    failed = sum(outcome.judgement.verdict == "failed" for outcome in tried.outcomes)
    share = 100 * right / len(tried.outcomes)
    if failed or share < options.at_least:
        print(f"Not passed: {failed} failed, {share:.0f} % right.")
        return 1
    print(f"Passed: none failed, {share:.0f} % right.")
    return 0


def _wire_code(tried: Tried) -> int:
    """For any replies: the model was called in every way, and read to the end."""
    calls = [call for outcome in tried.outcomes for call in outcome.calls if call.outcome == OK]
    streamed = [outcome for outcome in tried.outcomes if outcome.by_model]
    planned = [o for o in tried.outcomes if "model" in o.plan.partition(":")[0]]
    problems = []
    if not any(call.output == "json" for call in calls):
        problems.append("no reply as JSON could be used")
    if not streamed:
        problems.append("no answer was streamed from the model")
    if tried.abandoned:
        problems.append("generations went on without a reader")
    if problems:
        print(f"Not passed: {'; '.join(problems)}.")
        return 1
    print(
        f"Passed: {len(tried.outcomes)} questions ended as they may, {len(planned)} planned by the "
        f"model, {len(streamed)} answered in its streamed words."
    )
    return 0
