"""Rules about what an agent refuses: invalid input, unauthenticated callers, unapproved actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from bos.agent.v1 import (
    AgentInput,
    ApprovalContext,
    DescribeRequest,
    ExecuteRequest,
    PrepareRequest,
    ProposedAction,
    RetryConfig,
)
from bos.common.v1 import Value, ValueList
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_chassis.values import to_value, to_value_map
from bos_errors import (
    NEUTRAL_INTERNAL_MESSAGE,
    BosError,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    from_rpc_error,
)
from bos_testkit.agent_contract.answers import FAILED, SUCCEEDED, WAITS, check_result
from bos_testkit.agent_contract.subject import (
    RUN,
    STEP,
    TIMEOUT_S,
    USER,
    ContractBroken,
    require,
    step_metadata,
)
from bos_testkit.hostile import hostile_texts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_testkit.agent_contract.subject import Client, Subject

_CANARY = "canary-5f2c61d09be84a17"
_DEPTH = 40
_WIDTH = 5_000
_TOO_LARGE = 9 * 1024 * 1024
_DEFECTS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN})


async def bad_input_is_refused_with_field_and_fix(subject: Subject) -> None:
    """What the schema forbids, or is meant for another agent, never reaches the agent's work."""
    step = subject.step()
    bad = {
        "input": ExecuteRequest(),
        "input.task": ExecuteRequest(input=subject.step(task="")),
        "input.task ": ExecuteRequest(input=subject.step(task="x" * 65_537)),
        "input.token_budget": ExecuteRequest(input=subject.step(token_budget=-1)),
        "input.api_keys_config_ref": ExecuteRequest(
            input=subject.step(api_keys_config_ref="k" * 129)
        ),
        "input.model": ExecuteRequest(input=subject.step(model="m" * 129)),
        "input.agent_name": ExecuteRequest(input=subject.step(agent_name="another_agent")),
    }
    async with subject.open() as agent:
        before = subject.model.calls
        for field, request in bad.items():
            refusal = await _refusal(agent.stub.Execute(request, timeout=TIMEOUT_S))
            require(
                isinstance(refusal, InvalidArgument), f"bad {field} is INVALID_ARGUMENT: {refusal}"
            )
            named = {each.field: each.description for each in refusal.violations}
            require(
                named.get(field.strip()), f"the refusal of {field} names field and fix: {named}"
            )
        step.task = "x"
        step.context.update({"padding": "x" * _TOO_LARGE})
        refusal = await _refusal(agent.start(step))
        require(refusal.code not in _DEFECTS, f"a call that is too large is refused: {refusal}")
        require(subject.model.calls == before, "what is refused costs no call of a model")


async def hostile_input_is_no_defect(subject: Subject) -> None:
    """Steps with input that is deep, wide, empty or wrong end with a result that says why."""
    async with subject.open() as agent:
        for what, step in _hostile(subject):
            try:
                result = (await agent.execute(step)).result
            except grpc.aio.AioRpcError as error:
                refusal = from_rpc_error(error)
                require(refusal.code not in _DEFECTS, f"{what} is no defect: {error.details()}")
                continue
            check_result(subject, result)
            require(
                NEUTRAL_INTERNAL_MESSAGE not in result.error.message,
                f"{what} is no defect of the agent: {result.error}",
            )


def _hostile(subject: Subject) -> list[tuple[str, AgentInput]]:
    deep = Value(string_value="x")
    for _ in range(_DEPTH):
        deep = Value(list_value=ValueList(values=[deep]))
    hostile = [each.text for each in hostile_texts()]
    words = Value(decimal_value="seven")
    values = {
        "an empty value": Value(),
        "a deep value": deep,
        "a wide value": to_value(list(range(_WIDTH))),
        "not a number": Value(double_value=float("nan")),
        "an endless number": Value(double_value=float("-inf")),
        "a long number": Value(decimal_value="9" * 5_000),
        "a number in words": words,
    }
    return [
        ("a task with every hostile text", subject.step(task="\n".join(hostile))),
        ("a blank task", subject.step(task="\u00a0 ")),
        ("an entity with a deep value", subject.step(entities={"a": deep})),
        ("an entity with a number in words", subject.step(entities={"a": words})),
        *(
            (f"an argument with {what}", subject.step(sub_task_input={"text": v, "query": v}))
            for what, v in values.items()
        ),
        ("a tool that is not there", subject.step(tool_name="no_such_tool")),
        ("tools that are not there", subject.step(tools=["no_such_tool", "../sql"])),
        ("history without end", subject.step(conversation_history=[{"content": "x"}] * _WIDTH)),
        ("a negative time", subject.step(retry_config=RetryConfig(max_retries=-1))),
        ("a negative count of turns", subject.step(clarification_turn_count=-(2**31))),
        (
            "data with empty and invalid names",
            subject.step(dependency_outputs={"": to_value_map({"": 1, "a\x00b": 2})}),
        ),
    ]


async def unauthenticated_callers_are_refused(subject: Subject) -> None:
    """Only a run token of the gateway, for this agent and exactly this step, opens a step."""
    private, public = generate_keypair()
    signer, unknown_signer = RunTokenSigner(private), RunTokenSigner(generate_keypair()[0])
    own = {"user": USER, "run": RUN, "step": STEP, "audiences": [subject.name], "ttl_s": 3600.0}

    def token(signer: RunTokenSigner = signer, **changed: Any) -> dict[str, str]:
        return {RUN_TOKEN_KEY: signer.mint(**{**own, **changed})}

    unknown: dict[str, dict[str, str]] = {
        "no key": {},
        "a wrong key": {"authorization": "Bearer wrong"},
        "an invalid token": {RUN_TOKEN_KEY: "nonsense"},
        "a token of another audience": token(audiences=["another_agent"]),
        "a token for another agent and this one": token(audiences=["another_agent", subject.name]),
        "a token that has expired": token(ttl_s=-3600.0),
        "a token with an unknown signature": token(unknown_signer),
    }
    others = {
        "another step": token(step="run-1/0/step_2"),
        "another run": token(run="run-2"),
        "another user": token(user="ravi"),
        "no step": token(step=""),
    }
    async with subject.open(auth=AuthSettings(run_token_public_keys=public)) as agent:
        before = subject.model.calls
        for who, headers in unknown.items():
            for method, call in _every_method(agent, subject, headers):
                refusal = await _refusal(call, f"{method} with {who} is refused")
                require(
                    isinstance(refusal, Unauthenticated),
                    f"{method} with {who} is UNAUTHENTICATED: {refusal}",
                )
        for whose, headers in others.items():
            refusal = await _refusal(
                agent.start(subject.step(), list(headers.items())),
                f"a token of {whose} does not open this one",
            )
            require(
                isinstance(refusal, PermissionDenied),
                f"a token of {whose} is PERMISSION_DENIED: {refusal}",
            )
        require(subject.model.calls == before, "a refused call causes no work")
        result = (await agent.execute(subject.step(), list(token().items()))).result
        require(result.status != FAILED, f"the token of the step opens it: {result.error}")


def _every_method(agent: Client, subject: Subject, headers: dict[str, str]) -> list[Any]:
    to: dict[str, Any] = {"timeout": TIMEOUT_S, "metadata": tuple(headers.items())}
    prepare = PrepareRequest(metadata=step_metadata(step_key=""), question="What is it?")
    return [
        ("Describe", agent.stub.Describe(DescribeRequest(), **to)),
        ("Prepare", agent.stub.Prepare(prepare, **to)),
        ("Execute", agent.stub.Execute(ExecuteRequest(input=subject.step()), **to)),
    ]


async def nothing_is_performed_unapproved(subject: Subject) -> None:
    """A protected tool is proposed, and exactly what was approved is performed."""
    async with subject.open() as agent:
        protected = [tool.name for tool in (await agent.card()).tools if tool.requires_approval]
        forged = ProposedAction(
            action_id="a1", tool="delete_everything", digest="sha256:00", summary="Harmless"
        )
        await _is_not_performed(subject, agent, subject.step(), forged)
        if not protected:
            return
        require(
            subject.proposing is not None and subject.performed is not None,
            f"the suite knows a step that needs approval, for the card protects {protected}",
        )
        assert subject.performed is not None
        before = subject.performed()
        for tools in ([], protected):  # without a list only tools that need no approval are allowed
            step = subject.step(subject.proposing, tools=tools)
            result = (await agent.execute(step)).result
            check_result(subject, result)
            require(not result.performed_actions, "what waits for approval has not been performed")
            require(subject.performed() == before, "nothing happens before the approval")
        require(result.status == WAITS, f"a protected tool waits for approval: {result.error}")
        require(
            all(action.tool in protected for action in result.proposed_actions),
            "what is proposed are protected tools",
        )
        action = result.proposed_actions[0]
        changed = ProposedAction()
        changed.CopyFrom(action)
        for value in changed.arguments.fields.values():
            value.CopyFrom(to_value("something else"))
        await _is_not_performed(subject, agent, subject.step(subject.proposing), changed)
        require(subject.performed() == before, "what was changed since is not performed")
        approved = ApprovalContext(approval_id="a1", approved_actions=[action])
        step = subject.step(subject.proposing, approval_context=approved)
        result = (await agent.execute(step)).result
        require(result.status == SUCCEEDED, f"what was approved is performed: {result.error}")
        done = [each.action.digest for each in result.performed_actions]
        require(done == [action.digest], "exactly the approved action is performed")
        require(subject.performed() == before + 1, "what was approved happens once")


async def _is_not_performed(
    subject: Subject, agent: Client, step: AgentInput, action: ProposedAction
) -> None:
    step.approval_context.CopyFrom(ApprovalContext(approval_id="a1", approved_actions=[action]))
    result = (await agent.execute(step)).result
    check_result(subject, result)
    require(result.status == FAILED, "an action that is not the approved one fails its step")
    require(not result.performed_actions, "an action that is not the approved one is not performed")
    require(
        NEUTRAL_INTERNAL_MESSAGE not in result.error.message,
        f"the step says why it failed: {result.error}",
    )


async def secrets_are_never_echoed(subject: Subject) -> None:
    """Credentials of a step and of its caller stand in no result, event, log or prompt."""
    private, public = generate_keypair()
    token = RunTokenSigner(private).mint(USER, RUN, STEP, [subject.name], 3600.0)
    auth = AuthSettings(run_token_public_keys=public)
    async with subject.open(auth=auth) as agent:
        described = RunTokenSigner(private).mint("gateway", "", "", [subject.name], 3600.0)
        declared = (await agent.card([(RUN_TOKEN_KEY, described)])).secret_context_keys
        secrets = dict.fromkeys((*declared, "api_key", "password"), _CANARY)
        steps = (
            subject.step(secrets=secrets),
            subject.step(secrets=secrets, tool_name="no_such_tool", tools=["no_such_tool"]),
            subject.step(subject.proposing, secrets=secrets),
        )
        sent = [(await agent.execute(step, [(RUN_TOKEN_KEY, token)])).sent for step in steps]
    places = {
        "what the agent sends": "\n".join(sent),
        "its log": str(subject.telemetry.logs),
        "its spans": str([dict(span.attributes or {}) for span in subject.telemetry.spans]),
        "its prompts": "\n".join(request.prompt for request in subject.model.requests),
    }
    for place, text in places.items():
        require(_CANARY not in text, f"no credential of a step stands in {place}")
        require(token not in text, f"no run token stands in {place}")


async def _refusal(call: Any, what: str = "the call is refused") -> BosError:
    """Why ``call``, of one reply or a stream of them, was refused.

    Raises:
        ContractBroken: it was not.
    """
    try:
        if isinstance(call, grpc.aio.UnaryUnaryCall):
            await call
        else:
            replies: AsyncIterator[Any] = call
            async for _ in replies:
                pass
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    raise ContractBroken(what)
