"""A real Prometheus with the configuration and rules that are shipped."""

import asyncio
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bos_testkit.processes import free_port

PROMETHEUS = Path(__file__).parents[3] / "deploy/observability/prometheus"
_START_S = 60.0
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    async def query(self, expr: str) -> list[dict[str, Any]]:
        """Result of an instant query.

        Raises:
            AssertionError: Prometheus refused it.
        """
        reply = await asyncio.to_thread(self._get, "query", {"query": expr})
        return list(reply["data"]["result"])

    async def api(self, path: str, **arguments: str) -> Any:
        """Data of any other endpoint of Prometheus' API."""
        return (await asyncio.to_thread(self._get, path, arguments))["data"]

    async def until(self, expr: str, *, within_s: float = 120.0) -> None:
        """Return once a query has a result."""
        async with asyncio.timeout(within_s):
            while not await self.query(expr):  # noqa: ASYNC110  Prometheus is asked
                await asyncio.sleep(_PAUSE_S)

    def _get(self, path: str, arguments: dict[str, str]) -> dict[str, Any]:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                return dict(json.load(reply))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from None


@asynccontextmanager
async def running_prometheus(folder: Path, targets: Sequence[int]) -> AsyncIterator[Prometheus]:
    """The configuration that is shipped, with an interval of a second and these ports."""
    port = free_port()
    config = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / "rules/*.yaml")]
    del config["alerting"]
    (job,) = config["scrape_configs"]
    job["file_sd_configs"] = [{"files": [str(folder / "targets.json")]}]
    addresses = [f"127.0.0.1:{each}" for each in targets]
    (folder / "targets.json").write_text(json.dumps([{"targets": addresses}]))
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{port}"
    program = (
        "prometheus",
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    )
    log = folder / "prometheus.log"
    async with running_program(*program, healthy=f"{url}/-/ready", log=log):
        yield Prometheus(url)


@asynccontextmanager
async def running_program(
    *program: str, healthy: str, log: Path, **environment: str
) -> AsyncIterator[None]:
    """Run a program until the block is left; entered once it answers at ``healthy``."""
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *program, env={**os.environ, **environment}, stdout=said, stderr=said
        )
        try:
            async with asyncio.timeout(_START_S):
                while not await asyncio.to_thread(_healthy, healthy):
                    assert process.returncode is None, await asyncio.to_thread(log.read_text)
                    await asyncio.sleep(_PAUSE_S)
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
