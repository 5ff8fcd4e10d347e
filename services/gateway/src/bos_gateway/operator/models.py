"""Checks of the model settings, as far as they can be seen from here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bos_chassis.errors import BosError
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_gateway.operator.findings import Finding, ok, problem, warning
from bos_llm import Models, ModelSettings, Probe, identity_available, probe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos_gateway.operator.deployment import Deployment

_CALL_S: Final = 7.0
_HERE = "by the environment of this command; services elsewhere have their own"


async def check_models(deployment: Deployment, *, call: bool) -> list[Finding]:
    """Whether planner, composer and agents have a model; with ``call``, whether it answers."""
    if deployment.model:
        return [ok("models", f"the standalone uses {deployment.model}")]
    try:
        settings = ModelSettings.load(max_attempts=1)
        users = ("planner", "composer", *sorted(deployment.agent_targets))
        configs = {name: settings.get_agent_model_config(name) for name in users}
        settings.price_table()
    except BosError as error:
        return [problem("models", error.message, "Correct the variable.")]
    found: list[Finding] = []
    if settings.azure_auth == "managed_identity" and not identity_available():
        text = "AZURE_OPENAI_AUTH is managed_identity, and azure-identity is not installed here"
        found.append(problem("models", text, "Install bos-llm[azure], or use a key."))
    ready: list[str] = []
    for name, config in configs.items():
        if missing := settings.missing(name, config):
            text = f"{name} has no model ({_HERE})"
            found.append(warning("models", text, f"Set {' and '.join(missing)}, if it needs one."))
        else:
            keys = f", keys {config.keys}" if config.keys else ""
            text = f"{name}: {config.model} of {config.provider}{keys} ({_HERE})"
            found.append(ok("models", text))
            ready.append(name)
    if call:
        # One call for each model, whoever uses it.
        found += await _call(settings, {configs[name]: name for name in ready}.values())
    return found


async def _call(settings: ModelSettings, names: Iterable[str]) -> list[Finding]:
    quiet = TelemetrySettings.load(log_level="error", otlp_endpoint=None)
    with setup_telemetry("bos-doctor", quiet) as telemetry:
        async with Models(settings, telemetry) as models:
            found = await asyncio.gather(*(_ask(models, name) for name in names))
    return [finding for findings in found for finding in findings]


async def _ask(models: Models, name: str) -> list[Finding]:
    config = models.for_agent(name).config
    who = f"{config.model} of {config.provider}"
    return [
        ok("models", f"{who}, {found.name}: {found.text}")
        if found.ok
        else _complaint(f"{who}, {found.name}: {found.text}", found)
        for found in await probe(models, name, timeout_s=_CALL_S)
    ]


def _complaint(text: str, found: Probe) -> Finding:
    """What a server says about itself is worth a look; a call that fails is a problem."""
    make = warning if found.name == "server" else problem
    return make("models", text, found.advice)
