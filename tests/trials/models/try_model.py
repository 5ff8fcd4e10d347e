"""`make trial NAME=model`: asks a real model the evaluation set; see docs/models.md.

Exit code 0: every run ended, and enough answers passed; 1: not; 2: nothing could be tried.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

from bos_chassis.concurrency.loop import new_event_loop
from bos_chassis.telemetry import Telemetry
from bos_cli.evaluation.questions import read_set
from bos_cli.evaluation.running import Graded, ask_all, report_of
from bos_client import BosClient
from bos_errors import BosError, ConfigurationError
from bos_llm import ModelSettings
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_try.servers import MODEL, ROOT, forget_models, litellm, llama, slow_settings

OUTPUT = ROOT / ".data/try-model.json"
CONFIGURED, SCRIPTED, LLAMA, LITELLM = "configured", "scripted", "llama", "litellm"
_FEW = 3
"""Questions to a model on a CPU, which takes minutes for each."""
_TIMEOUT_S = 3700.0
_DOCUMENTS_WITHIN_S = 900.0
_WHAT_TO_SET = (
    "No model is configured. Set OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL, here or in .env "
    "(docs/models.md has a block for each provider); or MODEL=llama for a small real model of our "
    "own, MODEL=litellm for the same behind LiteLLM, MODEL=scripted for the demo's scripted model."
)


def main() -> int:
    """Ask, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="try-model", description=__doc__)
    models = (CONFIGURED, SCRIPTED, LLAMA, LITELLM)
    parser.add_argument("--model", choices=models, default=CONFIGURED, help="whose answers")
    parser.add_argument("--limit", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--at-least", type=float, default=0, help="percent that must pass")
    parser.add_argument("--output", type=lambda text: Path(text).absolute(), default=OUTPUT)
    options = parser.parse_args()
    # A model with 135 million parameters cannot answer: a few questions show that runs end.
    if options.model in (LLAMA, LITELLM):
        options.limit = options.limit or _FEW
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            report = runner.run(_try(options))
    except BosError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        return 2
    options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    unanswered = [each["id"] for each in report["results"] if not each["status"]]
    asked, passed = report["totals"]["questions"], report["totals"]["passed"]
    print(f"{passed} of {asked} passed; details: {options.output}")
    if unanswered:
        print(f"Without an end: {', '.join(unanswered)}")
    return int(bool(unanswered) or 100 * passed < options.at_least * asked)


async def _try(options: argparse.Namespace) -> dict[str, Any]:
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found = read_set(Path(str(files("bos_demo") / "evaluation.yaml")))
    asked = found.questions[: options.limit or None]
    questions = found.model_copy(update={"questions": asked})
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bos-try-")))
        await _configure(options, folder, stack)
        settings = StandaloneSettings.load(
            data_dir=folder / "data", rest=False, port=0, demo_documents=not options.limit
        )
        telemetry = Telemetry.for_tests("try-model")
        product = await stack.enter_async_context(serve_all(settings, telemetry))
        bos = await stack.enter_async_context(BosClient(product.target, api_key=product.api_key))
        if product.documents is not None and not options.limit:
            await product.documents.ready(_DOCUMENTS_WITHIN_S)
        print(f"Asking {len(questions.questions)} questions of {product.model}.", flush=True)
        results = await ask_all(bos, questions, at_once=1, timeout_s=_TIMEOUT_S, done=_show)
    return report_of(questions, results)


async def _configure(options: argparse.Namespace, folder: Path, stack: AsyncExitStack) -> None:
    """Have every service use the chosen model."""
    if options.model == CONFIGURED:
        settings = ModelSettings.load()
        if settings.missing("", settings.get_agent_model_config("")):
            raise ConfigurationError(_WHAT_TO_SET)
        return
    forget_models()
    # A .env beside the project must not choose another model for some agent.
    os.chdir(folder)
    if options.model == SCRIPTED:
        return
    url = f"{await stack.enter_async_context(llama(options.output.parent))}/v1"
    provider = "llamacpp"
    if options.model == LITELLM:
        proxy, key = await stack.enter_async_context(
            litellm(options.output.parent, "litellm.yaml", LLAMA_URL=url)
        )
        url, provider, os.environ["OPENAI_API_KEY"] = f"{proxy}/v1", "litellm", key
    for name, value in slow_settings().items():
        os.environ.setdefault(name, value)
    os.environ |= {"BOS_MODEL": MODEL, "OPENAI_BASE_URL": url, "BOS_MODEL_PROVIDER": provider}


def _show(result: Graded) -> None:
    print(f"{result.question.id}: {result.verdict}", flush=True)
    for check in result.checks:
        if not check.passed:
            print(f"  {check.name}: {check.found}; expected: {check.expected}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
