"""The command: what to measure, how long, and where the figures go."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bos_bench import approval, diamond, guard, log, model, rest, run, sandbox
from bos_bench.measure import Effort
from bos_bench.picture import write_picture
from bos_bench.report import machine, text_of, write_json
from bos_bench.sampling import profile_text
from bos_bench.store import durable_store
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bos_bench.measure import Part
    from bos_bench.store import Store
    from bos_chassis.telemetry import Telemetry

ROOT = Path(__file__).parents[3]
PARTS = ("diamond", "log", "run", "rest", "approval", "guard", "sandbox", "model")
_NEED_STORE = frozenset({"diamond", "log", "run", "rest", "approval"})
_PART_TIMEOUT_S = 300
_DIAMOND_TIMEOUT_S = 1800
_INTERRUPTED = 130
_METHOD = "Medians of five rounds; the two sides of a ratio took turns.\n"
_HIDDEN_VARIABLES = ("BOS_", "OPENAI_", "AZURE_OPENAI_")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, and print; returns the exit status."""
    options = _parser().parse_args(arguments)
    _forget_configuration()
    try:
        asyncio.run(_bench(options))
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


async def _bench(options: argparse.Namespace) -> None:
    about, began = machine(), time.perf_counter()
    _print_heading(about)
    # Production without an exporter: metrics are counted, spans have ids and are not recorded.
    settings = TelemetrySettings.load(log_level="warning", otlp_endpoint=None)
    async with AsyncExitStack() as stack:
        telemetry = stack.enter_context(setup_telemetry("bench", settings))
        store = None
        if options.profile is not None or _NEED_STORE & set(options.only):
            store = await stack.enter_async_context(durable_store())
        if options.profile is not None and store is not None:
            print(await profile_text(store, telemetry, options.profile, options.rows))
            return
        print("Only to show that it runs.\n" if options.quick else _METHOD)
        effort = Effort.quick() if options.quick else Effort.full()
        parts: dict[str, Part] = {}
        for name, measure in _measurements(store, telemetry, effort).items():
            if name in options.only:
                patience = _DIAMOND_TIMEOUT_S if name == "diamond" else _PART_TIMEOUT_S
                async with asyncio.timeout(patience):
                    parts[name] = await measure()
                print(text_of(name, parts[name]), flush=True)
                # After each part, so that its figures are kept if the next one fails.
                write_json(options.json, quick=options.quick, about=about, parts=parts)
    if options.picture is not None and "diamond" in parts:
        write_picture(options.picture, parts["diamond"])
    print(f"{time.perf_counter() - began:.0f} s; figures as JSON in {_shown(options.json)}")


def _measurements(
    store: Store | None, telemetry: Telemetry, effort: Effort
) -> dict[str, Callable[[], Awaitable[Part]]]:
    parts: dict[str, Callable[[], Awaitable[Part]]] = {
        "guard": lambda: guard.measure(effort),
        "sandbox": lambda: sandbox.measure(effort),
        "model": lambda: model.measure(telemetry, effort),
    }
    if store is not None:
        parts["diamond"] = lambda: diamond.measure(store, effort)
        parts["log"] = lambda: log.measure(store, telemetry, effort)
        parts["run"] = lambda: run.measure(store, telemetry, effort)
        parts["rest"] = lambda: rest.measure(store, telemetry, effort)
        parts["approval"] = lambda: approval.measure(store, telemetry, effort)
    return {name: parts[name] for name in PARTS if name in parts}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measures the hot paths of Bos. Compare figures of one run, not of two."
    )
    parser.add_argument(
        "--only",
        type=_part_names,
        default=PARTS,
        metavar="PART[,PART]",
        help=f"measure these parts only: {', '.join(PARTS)}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="only show that everything runs; a few seconds"
    )
    parser.add_argument(
        "--json",
        type=lambda text: Path(text).absolute(),
        default=ROOT / "build" / "bench.json",
        metavar="FILE",
        help="where the figures go (default: build/bench.json)",
    )
    parser.add_argument(
        "--picture",
        type=lambda text: Path(text).absolute(),
        metavar="FILE",
        help="where a picture of the diamond goes, an SVG; needs that part",
    )
    parser.add_argument(
        "--profile",
        type=float,
        metavar="SECONDS",
        help="measure nothing; show where the processor time of a run goes",
    )
    parser.add_argument(
        "--rows", type=int, default=0, help="with --profile: rows that each agent returns"
    )
    return parser


def _part_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(unknown)}; choose from {', '.join(PARTS)}"
        )
    return names


def _forget_configuration() -> None:
    """Measure Bos as it comes, not as this machine's variables and `.env` would have it."""
    for name in [name for name in os.environ if name.startswith(_HIDDEN_VARIABLES)]:
        del os.environ[name]
    os.chdir(Path(__file__).parent)


def _print_heading(about: dict[str, object]) -> None:
    print(
        f"{about['cpus']} processors ({about['cpu_model']}), {about['system']}, "
        f"Python {about['python']}, load average {about['load_average']}\n"
    )


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
