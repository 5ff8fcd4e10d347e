"""Rules about ends of steps: deadlines, cancellation, too many steps, shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
from google.protobuf import duration_pb2

from bos.agent.v1 import DescribeRequest, RetryConfig
from bos_errors import DeadlineExceeded, ResourceExhausted, from_rpc_error
from bos_testkit.agent_contract.answers import FAILED, SUCCEEDED, check_result
from bos_testkit.agent_contract.subject import (
    TIMEOUT_S,
    ContractBroken,
    connected,
    ended,
    require,
)
from bos_testkit.processes import forked_service, is_dead, running_process
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from bos.agent.v1 import AgentInput, AgentResult
    from bos_testkit.agent_contract.subject import Client, Outcome, Subject

# Of a step whose model does not answer: long enough, on some machine, for it to be asked.
_TIMES_S = (1, 5, 25)
_GRACE_S = 180
_ANSWER_S = 15


async def deadline_reaches_the_bottom(subject: Subject) -> None:
    """A step whose time is over fails as late, and what it was waiting for is called off.

    An agent that can answer without its model may do so in time, and calls the model off as well.
    """
    async with subject.open() as agent:
        for time_s in _TIMES_S:
            with subject.held_model():
                asked, abandoned = subject.model.calls, subject.model.abandoned
                time = duration_pb2.Duration()
                time.FromTimedelta(timedelta(seconds=time_s))
                step = subject.step(retry_config=RetryConfig(timeout=time))
                result = await _late_result(agent, step)
                if subject.model.calls == asked:
                    continue  # a slow machine: it had not come that far
                check_result(subject, result)
                late = result.error.type == DeadlineExceeded.__name__
                require(
                    result.status == SUCCEEDED or (result.status == FAILED and late),
                    f"a step whose time is over fails, and its error says so, not {result.error}",
                )
                await _called_off(subject, abandoned)
                return
    require(False, "the example asks the model")


async def _late_result(agent: Client, step: AgentInput) -> AgentResult:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return (await agent.execute(step)).result
    except TimeoutError:
        raise ContractBroken("a step ends when its time is over") from None


async def cancellation_reaches_the_bottom(subject: Subject) -> None:
    """When its caller goes away, a step stops, and so does what it was waiting for."""
    async with subject.open(max_concurrent_steps=1) as agent:
        with subject.held_model():
            abandoned = subject.model.abandoned
            call = agent.start(subject.step())
            reading = asyncio.ensure_future(ended(call))
            await subject.is_asked()
            call.cancel()
            await asyncio.wait({reading})
            await _called_off(subject, abandoned)
        # The place of the step is free again as soon as the agent has seen it.
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    result = (await agent.execute(subject.step())).result
                    break
                except grpc.aio.AioRpcError as error:
                    require(
                        error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED,
                        f"the next step is taken: {error.details()}",
                    )
                    await asyncio.sleep(0.01)
    require(result.status != FAILED, f"the next step succeeds: {result.error}")


async def _called_off(subject: Subject, abandoned: int) -> None:
    try:
        await eventually(
            lambda: subject.model.abandoned > abandoned and not subject.model.in_flight,
            within_s=subject.patience_s,
        )
    except TimeoutError:
        require(False, "what a step waits for is called off with it")


async def too_many_steps_are_refused(subject: Subject) -> None:
    """Steps beyond what the agent can do at once are RESOURCE_EXHAUSTED, with a time to wait."""
    async with subject.open(max_concurrent_steps=1) as agent:
        with subject.held_model():
            call = agent.start(subject.step())
            reading = asyncio.ensure_future(ended(call))
            try:
                await subject.is_asked()
                more = agent.start(subject.step(agent_id="step_2"))
                waiting = asyncio.ensure_future(ended(more))
                done, _ = await asyncio.wait({waiting}, timeout=subject.patience_s)
                more.cancel()
                require(done, "a step that has no place is refused at once")
                refusal = waiting.exception()
                require(
                    isinstance(refusal, grpc.aio.AioRpcError), "a step that has no place is refused"
                )
                assert isinstance(refusal, grpc.aio.AioRpcError)
                error = from_rpc_error(refusal)
                require(
                    isinstance(error, ResourceExhausted), f"that is RESOURCE_EXHAUSTED, not {error}"
                )
                require(error.retry_after_s, "the refusal says when to try again")
            finally:
                call.cancel()
                await asyncio.wait({reading})


async def shutdown_lets_steps_end(subject: Subject) -> None:
    """After SIGTERM a process takes no more steps, ends those it has, and then itself."""
    environment = {
        "BOS_SERVER_PORT": "0",
        "BOS_SERVER_GRACE_S": str(_GRACE_S),
        "OPENAI_BASE_URL": subject.model.base_url,
        "OPENAI_API_KEY": "scripted",
        "BOS_MODEL": "scripted",
        **subject.process.environment,
    }
    module = subject.process.module
    command = (sys.executable, "-m", module)
    async with (
        (
            forked_service(module, environment)
            if subject.process.forked
            else running_process(*command, settings=environment)
        ) as process,
        connected(process.address) as agent,
        connected(process.address) as late,
    ):
        await late.card()
        with subject.held_model():
            step = asyncio.ensure_future(ended(agent.start(subject.step())))
            await subject.is_asked()
            os.kill(process.pid, signal.SIGTERM)
            await _takes_no_more(late, step)
            subject.model.knobs.clear()
            try:
                result = (await step).result
            except grpc.aio.AioRpcError as error:
                require(False, f"a step that is under way at SIGTERM ends: {error.details()}")
        check_result(subject, result)
        require(result.status != FAILED, f"it ends as if nothing had happened: {result.error}")
        try:
            await eventually(lambda: is_dead(process.pid), within_s=_GRACE_S)
        except TimeoutError:
            require(False, "the process ends when its steps have")


async def _takes_no_more(agent: Client, step: asyncio.Future[Outcome]) -> None:
    async with asyncio.timeout(_GRACE_S / 2):
        while not step.done():
            try:
                await agent.stub.Describe(DescribeRequest(), timeout=_ANSWER_S)
            except grpc.aio.AioRpcError:
                return  # refused; or unanswered, where its connection came as the server stopped
            await asyncio.sleep(0.01)
