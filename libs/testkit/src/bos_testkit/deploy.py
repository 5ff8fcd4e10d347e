"""An agent for tests: one free tool and two protected ones, and effects that are counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import SideEffectClass
from bos_agentkit import ToolContext, agent_card, succeeded, tool
from bos_testkit.agents import Effect, RecordingAgent

if TYPE_CHECKING:
    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask


class DeployAgent(RecordingAgent):
    """Looks how a service is doing without asking; deploys and rolls back when it may.

    The task says what: ``deploy SERVICE VERSION``, ``roll back SERVICE``, anything else looks. The
    words are searched for in the effective task, so instructions can change them.

    Args:
        name: Name of the agent.
        side_effect: What the card declares of the protected tools.
    """

    def __init__(
        self,
        name: str = "deploy",
        *,
        side_effect: SideEffectClass = SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
    ) -> None:
        @tool(
            description="Returns the running version of a service.",
            side_effect=SideEffectClass.SIDE_EFFECT_CLASS_NONE,
        )
        async def check_deploy_status(service: str) -> dict[str, Any]:
            self.looks += 1
            return {"service": service, "version": self.versions.get(service, "none")}

        @tool(
            description="Puts a version of a service into production.",
            requires_approval=True,
            side_effect=side_effect,
            summary="Deploy {service} {version}",
        )
        async def trigger_deployment(
            service: str, version: str, context: ToolContext
        ) -> dict[str, Any]:
            self._land(f"deploy {service} {version}", context)
            self.versions[service] = version
            return {"service": service, "version": version}

        @tool(
            description="Goes back to the version before.",
            requires_approval=True,
            side_effect=side_effect,
            summary="Roll {service} back",
        )
        async def rollback_deployment(service: str, context: ToolContext) -> dict[str, Any]:
            self._land(f"roll back {service}", context)
            self.versions.pop(service, None)
            return {"service": service, "version": "none"}

        self.effects: list[Effect] = []
        self.looks = 0
        self.versions: dict[str, str] = {}
        self.tools = (check_deploy_status, trigger_deployment, rollback_deployment)
        super().__init__(
            name, card=agent_card(name, "Deploys services.", tools=self.tools, max_retries=0)
        )

    @property
    def landed(self) -> Counter[str]:
        """Effects by what was done."""
        return Counter(effect.label for effect in self.effects)

    def _land(self, label: str, context: ToolContext) -> None:
        self.effects.append(Effect(label, context.idempotency_key))

    async def behave(self, task: AgentTask) -> AgentResult:
        """Look, deploy or roll back: what the line of the task with such words says that counts.

        Instructions that take the task's place stand before it, those that add to it behind it.
        """
        lines = [line.strip() for line in task.effective_task.splitlines()]
        for line in lines if task.overridden else reversed(lines):
            if line.startswith("deploy "):
                _, service, version = line.split()
                data = await task.tools.call("trigger_deployment", service=service, version=version)
                return succeeded(task, answer=f"Deployed {service} {version}.", data=data)
            if line.startswith("roll back "):
                service = line.removeprefix("roll back ")
                data = await task.tools.call("rollback_deployment", service=service)
                return succeeded(task, answer=f"Rolled {service} back.", data=data)
        service = lines[0].split()[-1] if lines and lines[0] else "it"
        data = await task.tools.call("check_deploy_status", service=service)
        return succeeded(task, answer=f"{service} runs {data['version']}.", data=data)
