"""Checks of the model settings, as far as they can be seen from here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bos_chassis.settings import TelemetrySettings, settings_from
from bos_chassis.telemetry import setup_telemetry
from bos_errors import BosError
from bos_gateway.operator.commands.findings import Finding, ok, problem, warning
from bos_llm import Models, ModelSettings, identity_available, probe, set_model_choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_gateway.operator.commands.deployment import Deployment
    from bos_llm import AgentModelConfig
    from bos_llm.prices import PriceTable

_CALL_S: Final = 7.0
_HERE = "by the environment of this command; services elsewhere have their own"


async def check_models(deployment: Deployment, *, call: bool) -> list[Finding]:
    """Whether planner, composer and agents have a model; with ``call``, whether it answers."""
    if deployment.model:
        return [ok("models", f"the standalone uses {deployment.model}")]
    try:
        with settings_from(deployment.settings_of):
            settings = ModelSettings.load(max_attempts=1)
        users = ("planner", "composer", *sorted(deployment.agent_targets))
        configs = {name: settings.get_agent_model_config(name) for name in users}
        offered = [settings.get_agent_model_config("", name) for name in deployment.models]
        prices = settings.price_table()
    except BosError as error:
        return [problem("models", error.message, "Correct the variable.")]
    found: list[Finding] = []
    if settings.azure_auth == "managed_identity" and not identity_available():
        text = "AZURE_OPENAI_AUTH is managed_identity, and azure-identity is not installed here"
        found.append(problem("models", text, "Install bos-llm[azure], or use a key."))
    callers: dict[AgentModelConfig, str] = {}  # one for each model, also if several use it
    for name, config in configs.items():
        if missing := settings.missing(name, config):
            text = f"{name} has no model ({_HERE})"
            found.append(warning("models", text, f"Set {' and '.join(missing)}, if it needs one."))
        else:
            keys = f", keys {config.keys}" if config.keys else ""
            text = f"{name}: {config.model} of {config.provider}{keys} ({_HERE})"
            found.append(ok("models", text))
            callers[config] = name
    found += _offered(offered, [each.model for each in callers], prices)
    for config in offered:
        if not settings.missing("", config):
            callers.setdefault(config, "")
    if call and deployment.settings_of == "file" and settings.azure_auth == "managed_identity":
        text = "models are not called: .env says where, and this machine's identity would go there"
        found.append(warning("models", text, "Set the model in the environment to call it."))
    elif call:
        found += await _call(settings, callers)
    return found


def _offered(
    offered: Sequence[AgentModelConfig], others: Sequence[str], prices: PriceTable
) -> list[Finding]:
    """What questions may choose; a model without a price is a trap where others have one."""
    names = [each.model for each in offered]
    has_prices = any(prices.find(name) for name in (*names, *others))
    found = []
    for each in offered:
        text = f"questions may choose {each.model} of {each.provider}"
        if has_prices and prices.find(each.model) is None:
            text += ", which has no price, so that it counts as costing nothing"
            found.append(warning("models", text, "Set it in BOS_MODEL_PRICES of all services."))
        else:
            found.append(ok("models", text))
    return found


async def _call(settings: ModelSettings, callers: Mapping[AgentModelConfig, str]) -> list[Finding]:
    quiet = TelemetrySettings.load(log_level="error", otlp_endpoint=None)
    with setup_telemetry("bos-doctor", quiet) as telemetry:
        async with Models(settings, telemetry) as models:
            asked = [_ask(models, config, name) for config, name in callers.items()]
            return [finding for found in await asyncio.gather(*asked) for finding in found]


async def _ask(models: Models, config: AgentModelConfig, name: str) -> list[Finding]:
    """Try the model of an agent; of no agent: one that questions may choose. Runs in a task."""
    found = []
    if not name:
        set_model_choice(config.model)
    for answer in await probe(models, name, timeout_s=_CALL_S):
        text = f"{config.model} of {config.provider}, {answer.name}: {answer.text}"
        # What a server says about itself is worth a look; a call that fails is a problem.
        complain = warning if answer.name == "server" else problem
        found.append(ok("models", text) if answer.ok else complain("models", text, answer.advice))
    return found
