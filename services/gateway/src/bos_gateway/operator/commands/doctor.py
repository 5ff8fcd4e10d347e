"""``bos doctor``: checks the gateway's dependencies, and states remedies.

Exit codes: 0 all is well, or warnings only; 2 there are problems; 1 the doctor itself failed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from bos_client.text import one_line
from bos_errors import ConfigurationError
from bos_gateway.operator.commands.bounded import run_bounded
from bos_gateway.operator.commands.cards import check_cards, check_connections
from bos_gateway.operator.commands.deployment import Deployment, find_deployment
from bos_gateway.operator.commands.findings import Finding, Level, ok, problem
from bos_gateway.operator.commands.models import check_models
from bos_gateway.operator.commands.proxies import check_proxies
from bos_gateway.operator.commands.store import check_store
from bos_gateway.operator.commands.targets import check_targets
from bos_gateway.operator.commands.trails import check_trails

PROBLEMS = 2


async def examine(deployment: Deployment, *, call_models: bool = False) -> list[Finding]:
    """All findings about a deployment. Every check has a bound; none waits for another's."""
    store, trails, (targets, cards), models = await asyncio.gather(
        check_store(deployment),
        check_trails(deployment),
        check_targets(deployment),
        check_models(deployment, call=call_models),
    )
    sane = check_cards(
        cards,
        deployment.fallback_agent,
        deployment.run_timeout_s,
        deployment.agent_audiences,
        deployment.agent_connections,
    )
    entrusted = check_connections(cards, deployment.agent_connections)
    protocols = check_proxies(deployment)
    found = [*store, *trails, *targets, *sane, *entrusted, *models, *protocols]
    return [ok("settings", deployment.source), *found]


@click.command()
@click.option("--model", "call_models", is_flag=True, help="Also call each model once.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
def doctor(call_models: bool, as_json: bool) -> None:
    """Check database, audit trails, services, agents, clocks, keys and models.

    Reads what the gateway reads (BOS_GATEWAY_...) from the environment, or else from .env of this
    folder alone, or else asks about the `bos serve all` of this folder. Exits with 2 if there is a
    problem; warnings do not count.
    """
    try:
        deployment = find_deployment(Path.cwd())
    except ConfigurationError as error:
        findings = [problem("settings", error.message, "Correct what is named.")]
    else:
        findings = run_bounded(examine(deployment, call_models=call_models))
    worst = max((finding.level for finding in findings), key=list(Level).index)
    if as_json:
        report = {"level": worst, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        for finding in findings:
            click.echo(_line(finding))
        counts = {each: sum(f.level == each for f in findings) for each in Level}
        click.echo(", ".join(f"{number} {each.value}" for each, number in counts.items()))
    sys.exit(PROBLEMS if worst is Level.PROBLEM else 0)


def _line(finding: Finding) -> str:
    # Parts of it, such as names on cards, come from elsewhere.
    text = f"{finding.level.value:<8} {finding.check}: {finding.text}"
    return one_line(f"{text} -> {finding.advice}" if finding.advice else text)
