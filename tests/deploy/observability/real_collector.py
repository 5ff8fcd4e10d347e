"""The real OpenTelemetry Collector with the configuration that is shipped, writing into a file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_server import running_program

from bos_testkit.otlp.spans import SeenSpan, read_spans
from bos_testkit.processes import free_port

CONFIG = Path(__file__).parents[3] / "deploy/observability/collector/collector.yaml"
_SIZE_BYTES = 4


@dataclass(frozen=True)
class Collector:
    """A running collector."""

    endpoint: str
    """As ``BOS_OTLP_ENDPOINT`` takes it."""
    file: Path
    """Messages of OTLP, each with its length before it."""

    @property
    def spans(self) -> list[SeenSpan]:
        """All that it has passed on so far."""
        found: list[SeenSpan] = []
        content = self.file.read_bytes() if self.file.exists() else b""
        while len(content) > _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(content[:_SIZE_BYTES])
            if len(content) < end:
                break  # it is being written
            found += read_spans(content[_SIZE_BYTES:end])
            content = content[end:]
        return found


@asynccontextmanager
async def real_collector(folder: Path) -> AsyncIterator[Collector]:
    """Run it until the block is left, as shipped, but that it also writes what it gets.

    Args:
        folder: Of its own, for that and for its log.
    """
    otlp, health, metrics = free_port(), free_port(), free_port()
    file = folder / "traces.binpb"
    own = {
        "exporters": {"file": {"path": str(file), "format": "proto"}},
        "service": {"pipelines": {"traces": {"exporters": ["file"]}}},
    }
    (folder / "collector.yaml").write_text(yaml.safe_dump(own))
    environment = {
        "OTLP_ADDRESS": f"127.0.0.1:{otlp}",
        "HEALTH_ADDRESS": f"127.0.0.1:{health}",
        "METRICS_PORT": str(metrics),
    }
    program = ("otelcol", f"--config={CONFIG}", f"--config={folder / 'collector.yaml'}")
    healthy = f"http://127.0.0.1:{health}"
    async with running_program(
        *program, healthy=healthy, log=folder / "collector.log", **environment
    ):
        yield Collector(f"http://127.0.0.1:{otlp}", file)
