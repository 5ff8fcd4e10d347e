"""The text agent: summarises, translates, rewrites, compares texts by a model.

::

    texts that fit ------------------------------> one call --------------> result
    longer, to be read ---> notes of each part --> notes that fit --> one call
    longer, to be written anew --> each part ----> joined

Texts come from the plan's input, else from the steps that this one depends on, else the task holds
them. A plan that names no tool has its task done as it stands.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from bos.agent.v1 import SideEffectClass
from bos_agentkit import Agent, AgentFailure, ToolContext, needed_reply, succeeded, tool
from bos_errors import AgentErrorType, InvalidArgument
from bos_llm.numbers.check import ungrounded_numbers
from bos_text import prompts
from bos_text.card import text_card
from bos_text.parts import split_text
from bos_text.replies import Items, Notes, Points, Worded
from bos_text.sources import Source, sources_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask
    from bos_llm import Message, Model, ModelNotConfigured
    from bos_text.settings import TextSettings

T = TypeVar("T", bound=BaseModel)

_NONE = SideEffectClass.SIDE_EFFECT_CLASS_NONE
_DEFAULT_TOOL = "run_prompt"
_OPTIONS = frozenset(
    {"focus", "max_words", "style", "number", "language", "instructions", "what", "prompt"}
)
"""Arguments of tools that are no texts to work on."""
_MAX_ITEMS = 200
_NOTES_SHARE = 4
"""Notes of a part are limited to a fourth of what a call reads."""

Texts = Annotated[
    list[dict[str, str]] | str,
    Field(description="@{outputs.STEP.FIELD}; empty: the texts of earlier steps"),
]
Wish = Annotated[str, Field(max_length=2_000)]
Prompt = Annotated[str, Field(max_length=20_000)]


class TextAgent(Agent):
    """Agent that summarises, translates, rewrites, extracts and compares.

    Args:
        settings: Limits.
        model: Reads and writes; None: every step fails.
    """

    def __init__(self, settings: TextSettings, model: Model | None) -> None:
        self._settings = settings
        self._model = model
        self.card = text_card(self.all_tools())

    @tool(description="Summarises texts.", side_effect=_NONE)
    async def summarise(
        self,
        context: ToolContext,
        text: Texts = "",
        focus: Wish = "",
        max_words: Annotated[int, Field(ge=10, le=2_000)] = 150,
        style: Literal["paragraph", "bullet_points", "executive"] = "paragraph",
    ) -> dict[str, Any]:
        """The summary, all numbers of which are those of the texts."""
        form = {
            "paragraph": "as running text",
            "bullet_points": "as bullet points, one fact each",
            "executive": "as a brief: the conclusion first, then what carries it",
        }[style]
        job = f"You summarise texts in at most {max_words} words, {form}."
        reply = await self._read(context.task, job, _given(text), Worded, _wish("Focus", focus))
        return {"text": reply.text}

    @tool(description="Lists the most important points.", side_effect=_NONE)
    async def key_points(
        self,
        context: ToolContext,
        text: Texts = "",
        number: Annotated[int, Field(ge=1, le=20)] = 5,
        focus: Wish = "",
    ) -> dict[str, Any]:
        """The points, the most important one first."""
        job = f"You list the {number} most important points of texts, fewer if there are fewer."
        reply = await self._read(context.task, job, _given(text), Points, _wish("Focus", focus))
        points = [point.strip() for point in reply.points if point.strip()][:number]
        return {"points": points, "text": "\n".join(f"- {point}" for point in points)}

    @tool(description="Translates texts.", side_effect=_NONE)
    async def translate(
        self,
        context: ToolContext,
        text: Texts = "",
        language: Annotated[str, Field(max_length=60)] = "",
    ) -> dict[str, Any]:
        """The whole text in the other language."""
        job = (
            "You translate texts as a whole, faithfully and without comment, into the language "
            "that the task or the plan names. Keep the form: paragraphs, lists, tables, citations "
            "as [1]."
        )
        return await self._written(context.task, job, _given(text), _wish("Language", language))

    @tool(description="Rewrites texts for another tone, reader or length.", side_effect=_NONE)
    async def rewrite(
        self, context: ToolContext, text: Texts = "", instructions: Wish = ""
    ) -> dict[str, Any]:
        """The whole text in other words."""
        job = "You rewrite texts as a whole, as the task asks, without changing what they say."
        wishes = _wish("Instructions", instructions)
        return await self._written(context.task, job, _given(text), wishes)

    @tool(description="Copies the passages or terms that are asked for.", side_effect=_NONE)
    async def extract(
        self, context: ToolContext, text: Texts = "", what: Wish = ""
    ) -> dict[str, Any]:
        """The items in the order of the text, each of which stands in it."""
        task, texts = context.task, self._texts(context.task, _given(text))
        job = "You copy from texts what the task asks for: each item exactly as it stands there."
        wishes = _wish("What to copy", what)
        replies = await self._each_part(
            task,
            texts,
            self._settings.read_chars,
            lambda part, place: self._reply(
                task, prompts.work_messages(task, job, part, wishes, place), Items
            ),
        )
        source = _plain("\n".join([*(each.text for each in texts), task.effective_task]))
        found = dict.fromkeys(item.strip() for reply in replies for item in reply.items)
        items = [item for item in found if item and _plain(item) in source]
        if len(items) < len(found):
            task.trace.message("Left out what does not stand in the text", items=len(found))
        items = items[:_MAX_ITEMS]
        return {"items": items, "text": "\n".join(f"- {item}" for item in items)}

    @tool(description="Compares two or more texts or results.", side_effect=_NONE)
    async def compare(
        self, context: ToolContext, text: Texts = "", focus: Wish = ""
    ) -> dict[str, Any]:
        """Similarities and differences of the texts, by their names."""
        job = (
            "You compare texts: what they share, where they differ, and what only one of them "
            "says. Name each text as it is named."
        )
        reply = await self._read(context.task, job, _given(text), Worded, _wish("Focus", focus))
        return {"text": reply.text}

    @tool(
        description="Does what its prompt says with the texts.",
        side_effect=_NONE,
        aliases=("GeminiStepExecutor",),
    )
    async def run_prompt(
        self, context: ToolContext, text: Texts = "", prompt: Prompt = ""
    ) -> dict[str, Any]:
        """Run the prompt of the task."""
        job = "You do one step of a larger piece of work with texts, as the task says."
        reply = await self._read(
            context.task, job, _given(text), Worded, _wish("Prompt", prompt), is_checked=False
        )
        return {"text": reply.text}

    async def execute(self, task: AgentTask) -> AgentResult:
        """Do one step."""
        name = task.input.tool_name or _DEFAULT_TOOL
        texts = sources_of(task, _OPTIONS)
        schemas = [each.input_schema.fields for each in self.card.tools if each.name == name]
        accepted = {key for each in schemas for key in each["properties"].struct_value.fields}
        options = {key: task.arguments[key] for key in accepted & _OPTIONS & set(task.arguments)}
        given = [{"name": each.name, "text": each.text} for each in texts]
        task.trace.decision("Works on texts", tool=name, texts=[each.name for each in texts])
        done = await task.tools.call(name, text=given, **options)
        if not done["text"]:
            text = "Nothing of what was asked for stands in the text."
            return succeeded(task, answer=text, data=done, confidence=0.6)
        return succeeded(task, answer=done["text"], data=done, confidence=0.9)

    async def _read(
        self,
        task: AgentTask,
        job: str,
        given: Sequence[Source],
        schema: type[T],
        wishes: str,
        *,
        is_checked: bool = True,
    ) -> T:
        """The reply to texts that are read; of longer ones to the notes of their parts."""
        texts = self._texts(task, given)
        sources = [*(each.text for each in texts), task.effective_task, task.input.question, wishes]
        while sum(len(each.text) for each in texts) > self._settings.read_chars:
            texts = await self._noted(task, job, texts, wishes)
        messages = prompts.work_messages(task, job, texts, wishes)
        reply = await self._reply(task, messages, schema)
        strange = ungrounded_numbers(_words(reply), sources) if is_checked else []
        if not strange:
            return reply
        named = ", ".join(strange[:5])
        task.trace.message(
            "The reply holds numbers that no text has; asking again", numbers=strange
        )
        problem = f"These numbers stand in none of the texts: {named}."
        reply = await self._reply(task, prompts.again(messages, problem), schema)
        if ungrounded_numbers(_words(reply), sources):
            raise AgentFailure(
                AgentErrorType.MODEL_OUTPUT_INVALID,
                "The model gave numbers that stand in none of the texts; ask again, or name the "
                "part of the text that matters.",
            )
        return reply

    async def _noted(
        self, task: AgentTask, job: str, texts: Sequence[Source], wishes: str
    ) -> list[Source]:
        """Notes of the parts of texts, half as long at most, so that repetition ends."""
        limit = self._settings.read_chars

        async def note(part: Sequence[Source], place: str) -> Source:
            (one,) = part
            messages = prompts.note_messages(task, job, one, wishes, place)
            reply = await self._reply(task, messages, Notes)
            most = min(limit // _NOTES_SHARE, len(one.text) // 2)
            return Source(one.name, reply.notes.strip()[:most])

        notes = await self._each_part(task, texts, limit, note)
        joined: dict[str, list[str]] = {}
        for each in notes:
            joined.setdefault(each.name, []).append(each.text)
        # Blank notes of every part leave one line, for the model to say that there is nothing.
        return [Source(name, "\n".join(filter(None, t)) or "-") for name, t in joined.items()]

    async def _written(
        self, task: AgentTask, job: str, given: Sequence[Source], wishes: str
    ) -> dict[str, Any]:
        """Texts that are written anew in full, part by part."""

        async def write(part: Sequence[Source], place: str) -> str:
            messages = prompts.work_messages(task, job, part, wishes, place)
            written = (await self._reply(task, messages, Worded)).text.strip()
            # The space between two parts is the text's own.
            ending = part[0].text[len(part[0].text.rstrip()) :] if part else ""
            return written + ending

        texts = self._texts(task, given)
        parts = await self._each_part(task, texts, self._settings.written_chars, write)
        return {"text": "".join(parts).strip()}

    async def _each_part(
        self,
        task: AgentTask,
        texts: Sequence[Source],
        limit: int,
        work: Callable[[Sequence[Source], str], Awaitable[Any]],
    ) -> list[Any]:
        """Results of ``work`` for the parts of the texts in order, some at once.

        Raises:
            InvalidArgument: there are too many parts.
        """
        parts = [
            Source(each.name, f"{part}\n\n" if last and number < len(texts) else part)
            for number, each in enumerate(texts, 1)
            for part, last in _with_last(split_text(each.text, limit))
        ]
        if len(parts) > self._settings.max_parts:
            raise InvalidArgument.field(
                "text",
                f"may have about {self._settings.max_parts * limit} characters for this; name the "
                "part that matters",
            )
        if len(parts) <= 1:
            return [await work(parts, "")]
        task.trace.message("The texts are worked on part by part", parts=len(parts))
        places = asyncio.Semaphore(self._settings.parallel_parts)

        async def one(number: int, part: Source) -> Any:
            async with places:
                return await work([part], f"{number} of {len(parts)}")

        try:
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(one(number, part)) for number, part in enumerate(parts, 1)
                ]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [each.result() for each in running]

    def _texts(self, task: AgentTask, given: Sequence[Source]) -> list[Source]:
        """The texts, none of them blank.

        Raises:
            InvalidArgument: earlier steps or the plan's input were to bring one, and it is empty.
        """
        texts = [each for each in given if each.text.strip()]
        if not texts and (task.input.dependency_outputs or set(task.arguments) - _OPTIONS):
            raise InvalidArgument.field("text", "must not be empty; the earlier step found none")
        return texts

    async def _reply(self, task: AgentTask, messages: Sequence[Message], schema: type[T]) -> T:
        return await needed_reply(task, self._model, messages, schema, no_model=_no_model)


def _given(text: list[dict[str, str]] | str) -> list[Source]:
    if isinstance(text, str):
        return [Source("text", text)] if text.strip() else []
    return [Source(each.get("name", "text"), each.get("text", "")) for each in text]


def _wish(name: str, text: str) -> str:
    return f"{name}: {text.strip()}" if text.strip() else ""


def _words(reply: BaseModel) -> str:
    """Full text of the reply."""
    return "\n".join(
        "\n".join(value) if isinstance(value, list) else str(value)
        for value in reply.model_dump().values()
    )


def _plain(text: str) -> str:
    """``text`` in one case and with single spaces, to find passages across lines."""
    return " ".join(text.casefold().split())


def _with_last(parts: Sequence[str]) -> list[tuple[str, bool]]:
    return [(part, number == len(parts)) for number, part in enumerate(parts, 1)]


def _no_model(_: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "Work on texts takes a language model, and none is configured. Set OPENAI_API_KEY, or "
        "OPENAI_BASE_URL and BOS_MODEL.",
    )
