"""`make bench NAME=paths`: measures hot paths here; see docs/operations/performance.md."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bos_bench import approval, diamond, rest
from bos_bench.measure import Effort, Part
from bos_bench.report import machine, text_of, write_json
from bos_bench.store import Store, durable_store
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import Telemetry, setup_telemetry

ROOT = Path(__file__).parents[2]
PARTS: dict[str, Callable[[Store, Telemetry, Effort], Awaitable[Part]]] = {
    "diamond": lambda store, _, effort: diamond.measure(store, effort),
    "rest": rest.measure,
    "approval": approval.measure,
}
_PART_TIMEOUT_S = 300
_DIAMOND_TIMEOUT_S = 1800
_INTERRUPTED = 130
_METHOD = "Medians of five rounds; the two sides of a ratio took turns.\n"
_HIDDEN_VARIABLES = ("BOS_", "OPENAI_", "AZURE_OPENAI_")


def main() -> int:
    """Parse the command line, measure, and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Measures the hot paths of Bos. Compare figures of one run, not of two."
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
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
    options = parser.parse_args()
    _forget_configuration()
    try:
        asyncio.run(_bench(options))
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


async def _bench(options: argparse.Namespace) -> None:
    about, began = machine(), time.perf_counter()
    print(
        f"{about['cpus']} processors ({about['cpu_model']}), {about['system']}, "
        f"Python {about['python']}, load average {about['load_average']}\n"
    )
    # Production without an exporter: metrics are counted, spans have ids and are not recorded.
    settings = TelemetrySettings.load(log_level="warning", otlp_endpoint=None)
    with setup_telemetry("bench", settings) as telemetry:
        async with durable_store() as store:
            print("Only to show that it runs.\n" if options.quick else _METHOD)
            effort = Effort.quick() if options.quick else Effort.full()
            parts: dict[str, Part] = {}
            for name in options.only:
                patience = _DIAMOND_TIMEOUT_S if name == "diamond" else _PART_TIMEOUT_S
                async with asyncio.timeout(patience):
                    parts[name] = await PARTS[name](store, telemetry, effort)
                print(text_of(name, parts[name]), flush=True)
                # After each part, so that its figures are kept if the next one fails.
                write_json(options.json, quick=options.quick, about=about, parts=parts)
    print(f"{time.perf_counter() - began:.0f} s; figures as JSON in {options.json}")


def _forget_configuration() -> None:
    """Measure Bos as it comes, not as this machine's variables and `.env` would have it."""
    for name in [name for name in os.environ if name.startswith(_HIDDEN_VARIABLES)]:
        del os.environ[name]
    os.chdir(Path(__file__).parent)


if __name__ == "__main__":
    sys.exit(main())
