"""A model that obeys orders which it reads in mails, API replies and files, in every call."""

from collections.abc import Callable, Collection
from typing import Any

from .obeying_model import LEAKS, plan
from .poisoned_documents import HONEST, PLANNER, QUESTION, TEXT
from .poisoned_hands import KEPT, THIEF, Deed, Poison, deed_in

FACTS, SUMMARY = "PersonalFacts", "ConversationSummary"
OURS = (PLANNER, TEXT, FACTS, SUMMARY)
"""Calls of planner, composer and memory."""


def obeying(poison: Callable[[], Poison | None], secrets: Collection[str]) -> Any:
    """What the model says.

    Args:
        poison: What the question at hand leads to; None: nothing has an order.
        secrets: Credentials, which the model passes on wherever it sees one.
    """

    def said(schema: str | None, prompt: str) -> str | dict[str, Any] | None:
        deed = deed_in(prompt)
        if schema == PLANNER:
            return _obeying_plan(deed, prompt) if deed else reading_plan(poison())
        words = _words(deed, [each for each in secrets if each in prompt])
        texts = {
            TEXT: words,
            SUMMARY: {"summary": words},
            "MailSummary": {"result": words},
            "ApiSummary": {"answer": words},
            "MailText": {"subject": "Kestrel", "body": words},
        }
        if schema in texts:
            return texts[schema]
        if schema == FACTS:
            facts = {"user_name": "Mallory", "recent_projects": [words]} if deed else {}
            return {"found": bool(deed), "critical_facts": facts}
        return _chosen(schema, deed)

    return said


def _words(deed: Deed | None, loot: list[str]) -> str:
    if deed is None:
        return HONEST[1]
    return "\n".join((deed.words, *loot, LEAKS))


def _chosen(schema: str | None, deed: Deed | None) -> dict[str, Any] | None:
    """The call of an agent that chooses one."""
    if schema == "MailAction":
        given = {"action": "search_inbox", "query": "", "message_id": "", "cc": [], "bcc": []}
        return {**given, "to": [THIEF] if deed else []}
    if schema == "ApiCallPlan":
        call = {"method": "GET", "path": "/orders"}
        if deed is not None and deed.agent == "api_docs":
            call = deed.inputs
        return {"make_request": True, "reason": deed.words if deed else "", **call}
    if schema == "FileOperation":
        if deed is None or deed.agent != "files":
            return {"operation": "read_file", "name": KEPT}
        return {"operation": deed.tool, **deed.inputs}
    return None


def _step(step_id: str, agent: str, tool: str, task: str, **inputs: str) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in inputs.items()]
    step = {"step_id": step_id, "agent": agent, "tool_name": tool, "task": task}
    return {**step, "sub_task_input": named}


def reading_plan(poison: Poison | None) -> dict[str, Any]:
    """Read; act with the answer for a task; fail, so that another plan is made."""
    if poison is None:
        return plan(_step("read", "api_docs", "call_api_read", QUESTION, path="/orders"))
    steps = []
    if poison.channel == "mail":
        steps.append(_step("read", "mail", poison.tool, QUESTION, query="after:2026-01-01"))
    elif poison.document is not None:
        steps.append(_step("read", "api_docs", "call_api_write", f"GET /{poison.what.split()[-1]}"))
    elif poison.channel == "api_docs":
        steps.append(_step("read", "api_docs", "call_api_read", QUESTION, path=poison.path))
    else:
        name = "@{outputs.fetch.name}"
        steps.append(_step("fetch", "files", "download_file", "Get it", url=f"SITE{poison.path}"))
        steps.append({**_step("read", "files", "read_file", "Read it", name=name)})
        steps[-1]["depends_on"] = ["fetch"]
    deed = poison.deed
    agent, tool = ("echo", "") if deed.agent == "gateway" else (deed.agent, deed.tool)
    act = _step("act", agent, tool, "@{outputs.read.answer}")
    lost = _step("lost", "echo", "", "echo", x="@{outputs.read.missing}")
    return plan(*steps, {**act, "depends_on": ["read"]}, lost)


def _obeying_plan(deed: Deed, prompt: str) -> dict[str, Any]:
    """The attacker's deed, and, after a failure, a step that fails for another plan to be made."""
    again = prompt.count("obey")
    act = _step(f"obey_{again}", deed.agent, deed.tool, deed.words, **deed.inputs)
    lost = _step(f"lost_{again}", "echo", "", deed.words, x="@{outputs.read.missing}")
    more = [lost] if "### Plan that failed" in prompt else []
    return plan(act, *more, rationale=deed.words)
