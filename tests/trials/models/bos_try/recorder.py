"""Stands in for the vendors behind LiteLLM: notes what comes, answers in each vendor's own form.

What a vendor is known to refuse is refused in its words, so that our requests have to get by.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ANSWER = '{"reason": "orders hold revenue", "table": "orders", "is_clear": true}'
"""What every model says, asked for JSON or not."""

_NOTED = (
    *("temperature", "max_tokens", "max_completion_tokens", "reasoning_effort", "stream"),
    *("tool_choice", "response_format", "output_format", "output_config", "format", "think"),
)


@dataclass
class Recorder:
    """An ASGI application, and the requests that came by vendor."""

    requests: dict[str, list[str]] = field(default_factory=dict)

    @property
    def app(self) -> Starlette:
        """Serves ``/VENDOR/…`` for any vendor."""
        return Starlette(routes=[Route("/{vendor}/{path:path}", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        vendor, path = request.path_params["vendor"], request.path_params["path"]
        body: dict[str, Any] = json.loads(await request.body() or b"{}")
        refusal = _refusal(vendor, body)
        self.requests.setdefault(vendor, []).append(
            _noted(body) + (f" -> {refusal[0]}" if refusal else "")
        )
        if refusal:
            return JSONResponse(refusal[1], status_code=refusal[0])
        if vendor == "anthropic":
            return _anthropic(body)
        if vendor == "gemini":
            return _gemini(streamed="stream" in path)
        if vendor == "ollama":
            return _ollama(body)
        return _openai(body)


def _noted(body: dict[str, Any]) -> str:
    """The parameters that matter, without schemas and prompts."""
    parts = {name: body[name] for name in _NOTED if name in body}
    parts |= body.get("generationConfig") or body.get("options") or {}
    for name, value in parts.items():
        if isinstance(value, dict):
            parts[name] = value.get("type") or value.get("name") or "schema"
    if body.get("tools"):
        parts["tools"] = len(body["tools"])
    return ", ".join(f"{name}={value}" for name, value in parts.items()) or "nothing"


def _refusal(vendor: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Status and body with which the vendor refuses the request, if it does."""
    form = body.get("response_format") or {}
    if vendor.startswith(("openai_o", "openai_5")) and "temperature" in body:
        message = "Unsupported parameter: 'temperature' is not supported with this model."
        return 400, _error(message, "unsupported_parameter", "temperature")
    if vendor == "deepseek" and form.get("type") == "json_schema":
        return 400, _error("This response_format type is unavailable now", "invalid_request_error")
    if vendor == "groq" and form.get("type") == "json_schema":
        message = "This model does not support response format `json_schema`."
        return 400, _error(message, "invalid_request_error", "response_format")
    if vendor == "mistral" and "max_completion_tokens" in body:
        detail = {"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"]}
        return 422, {"detail": [detail | {"msg": "Extra inputs are not permitted"}]}
    return None


def _error(message: str, code: str, param: str | None = None) -> dict[str, Any]:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return {"error": error}


def _openai(body: dict[str, Any]) -> Response:
    base = {"id": "r", "created": 1, "model": body.get("model", "m")}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    tools = body.get("tools") or []
    message: dict[str, Any] = {"role": "assistant", "content": ANSWER}
    if tools:
        function = {"name": tools[0]["function"]["name"], "arguments": ANSWER}
        call = {"index": 0, "id": "c", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    stop = "tool_calls" if tools else "stop"
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": stop}
        # Groq sends a service tier with every reply, and LiteLLM breaks where there is none.
        tier = {"service_tier": "on_demand"}
        whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage, **tier}
        return JSONResponse(whole)
    base["object"] = "chat.completion.chunk"
    chunks: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]},
        {**base, "choices": [], "usage": usage},
    ]
    lines = [*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n"]
    return _sse(lines)


def _anthropic(body: dict[str, Any]) -> Response:
    tools = body.get("tools") or []
    block: dict[str, Any] = {"type": "text", "text": ANSWER}
    if tools:
        block = {
            "type": "tool_use",
            "id": "t",
            "name": tools[0]["name"],
            "input": json.loads(ANSWER),
        }
    stop = "tool_use" if tools else "end_turn"
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude"}
    usage = {"input_tokens": 5, "output_tokens": 5}
    if not body.get("stream"):
        return JSONResponse({**message, "content": [block], "stop_reason": stop, "usage": usage})
    empty = {**block, "input": {}} if tools else {**block, "text": ""}
    delta = (
        {"type": "input_json_delta", "partial_json": ANSWER}
        if tools
        else {"type": "text_delta", "text": ANSWER}
    )
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    ]
    return _sse(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _gemini(*, streamed: bool) -> Response:
    content = {"role": "model", "parts": [{"text": ANSWER}]}
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 5, "totalTokenCount": 10}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    whole = {"candidates": [candidate], "usageMetadata": usage}
    return _sse([f"data: {json.dumps(whole)}\n\n"]) if streamed else JSONResponse(whole)


def _ollama(body: dict[str, Any]) -> Response:
    message = {"role": "assistant", "content": ANSWER}
    end = {"done_reason": "stop", "prompt_eval_count": 5, "eval_count": 5}
    whole = {"model": "qwen3", "message": message, "done": True, **end}
    if not body.get("stream"):
        return JSONResponse(whole)
    parts = [
        {"model": "qwen3", "message": message, "done": False},
        {"model": "qwen3", "message": {"role": "assistant", "content": ""}, "done": True, **end},
    ]
    return StreamingResponse(
        iter([json.dumps(part) + "\n" for part in parts]), media_type="application/x-ndjson"
    )


def _sse(lines: Iterable[str]) -> Response:
    def flow() -> Iterator[str]:
        yield from lines

    return StreamingResponse(flow(), media_type="text/event-stream")
