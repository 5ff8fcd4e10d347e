"""Model servers of our own: llama.cpp's with a small model, and LiteLLM in front of it."""

import asyncio
import os
import re
import secrets
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from bos_errors import ConfigurationError
from bos_testkit.processes import free_port

ROOT = Path(__file__).parents[4]
HERE = Path(__file__).parents[1]
LITELLM = ROOT / ".cache/litellm/bin/litellm"
MODEL = "smollm2"

_HOST = "127.0.0.1"
_START_S = 120.0
_STOP_S = 10.0
_POLL_S = 0.2
_MODEL_VARIABLES = re.compile(
    r"BOS_MODEL|OPENAI_|AZURE_OPENAI_|[A-Z0-9_]*_(MODEL|MODEL_PROVIDER|MODEL_KEYS|TEMPERATURE)$"
)

_BLOCK = re.compile(r"^```sh slow\n(.*?)^```", re.MULTILINE | re.DOTALL)


def slow_settings() -> dict[str, str]:
    """Tier, replies and times for a model on a CPU, as docs/models.md recommends."""
    block = _BLOCK.search((ROOT / "docs/models.md").read_text(encoding="utf-8"))
    if block is None:
        raise ConfigurationError("docs/models.md has no block of settings for slow models")
    times = dict(line.split("=", 1) for line in block[1].splitlines() if line)
    own = {
        "BOS_MODEL_TIER": "small",
        "BOS_MODEL_MAX_REPLY_TOKENS": "600",
        # Without it, such a model fills a list or a text with one and the same until its limit.
        "BOS_MODEL_EXTRA_BODY": '{"repeat_penalty": 1.3}',
    }
    return own | times


def forget_models() -> None:
    """Take every setting of a model out of the environment, so that only ours hold."""
    for name in [name for name in os.environ if _MODEL_VARIABLES.match(name)]:
        del os.environ[name]


@asynccontextmanager
async def llama(logs: Path) -> AsyncIterator[str]:
    """A running llama.cpp server, built if need be; yields its address."""
    script = str(HERE / "llama.sh")
    builder = await asyncio.create_subprocess_exec(script, "build", stdout=asyncio.subprocess.PIPE)
    await builder.communicate()
    if builder.returncode:
        raise ConfigurationError("llama.cpp's server could not be built; see above")
    port = free_port()
    url = f"http://{_HOST}:{port}"
    async with _running(logs / "llama-server.log", f"{url}/health", script, "serve", str(port)):
        yield url


@asynccontextmanager
async def litellm(logs: Path, config: str, **addresses: str) -> AsyncIterator[tuple[str, str]]:
    """A running LiteLLM proxy; yields its address and its key.

    Args:
        logs: Folder of its log.
        config: Name of its configuration, beside llama.sh.
        addresses: Variables that the configuration refers to, such as ``LLAMA_URL``.
    """
    if not LITELLM.exists():
        raise ConfigurationError("LiteLLM is not installed; `make litellm` installs it")
    port, key = free_port(), f"sk-{secrets.token_hex(16)}"
    url = f"http://{_HOST}:{port}"
    environment = {
        "LITELLM_MASTER_KEY": key,
        # Else it looks its table of models up on the network at every start.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        **addresses,
    }
    command = (str(LITELLM), "--config", str(HERE / config), "--host", _HOST)
    async with _running(
        logs / "litellm-proxy.log",
        f"{url}/health/liveliness",
        *(*command, "--port", str(port)),
        environment=environment,
    ):
        yield url, key


@asynccontextmanager
async def _running(
    log: Path, health: str, *command: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """A server as a child process, from when it is healthy until the block is left."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        await _healthy(process, health, log)
        yield
    finally:
        await _stop(process)


async def _healthy(process: asyncio.subprocess.Process, health: str, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + _START_S
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        while asyncio.get_running_loop().time() < deadline and process.returncode is None:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(health) as response:
                    if response.ok:
                        return
            await asyncio.sleep(_POLL_S)
    why = "it ended" if process.returncode is not None else f"not healthy after {_START_S:.0f} s"
    raise ConfigurationError(f"the server did not start ({why}); see {log}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop the server and all its child processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_S)
