"""The chains that are asked for, and what the scripted model says to each of their prompts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bos_demo.questions import RagStep, WebStep, load_questions
from bos_demo.scripted.document import rag_replies
from bos_demo.scripted.replies import composer_section
from bos_demo.scripted.web import web_replies
from bos_testkit.scripted_model.replies import Fixture, fixture

from .harness import plan_reply, planned

MANAGER = "manager@example.com"


def _step(kind: type[Any], questions: Sequence[Any], question_id: str) -> Any:
    (found,) = [
        step
        for question in questions
        if question.id == question_id
        for step in question.steps
        if isinstance(step, kind)
    ]
    return found


DOCS: RagStep = _step(RagStep, load_questions("documents"), "flight-class")
NEWS: WebStep = _step(WebStep, load_questions("web"), "web-castings-index")
DOCUMENT = DOCS.passages[0].document

REPORT = "report.pdf"
_READ = r"""
import re

def figures(text):
    plain = re.sub(r"\[\d+\]", "", text)
    return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*(?:\.\d+)?", plain)]

"""
_WRITE = """
with open("report.pdf", "wb") as file:
    file.write(b"%PDF-1.4 " + repr(found).encode() + bytes(range(256)))
result = {"largest": max(found)}
"""
PROGRAM = f'{_READ}found = figures(documents["answer"]){_WRITE}'
COMPARES = f'{_READ}found = figures(documents["answer"]) + figures(index["answer"]){_WRITE}'

ANALYSE, COMPARE = "Analyse the trend of the figures found", "Compare the figures of both"
MAIL = f"Send the report to {MANAGER}"


def figures(*answers: str) -> list[float]:
    """Numbers of sentences, as the programs find them."""
    texts = [re.sub(r"\[\d+\]", "", answer) for answer in answers]
    return [
        float(each.replace(",", ""))
        for text in texts
        for each in re.findall(r"\d[\d,]*(?:\.\d+)?", text)
    ]


def report(*answers: str) -> bytes:
    """The bytes of the report that a program makes of these answers."""
    return b"%PDF-1.4 " + repr(figures(*answers)).encode() + bytes(range(256))


@dataclass(frozen=True)
class Chain:
    """A question, the steps of its plan, and what it has to lead to."""

    question: str
    steps: tuple[dict[str, Any], ...]

    @property
    def agents(self) -> list[str]:
        """Agents of the steps."""
        return [str(step["agent"]) for step in self.steps]

    @property
    def report(self) -> bytes | None:
        """What the program writes; None if there is no program."""
        tasks = [step["task"] for step in self.steps]
        if COMPARE in tasks:
            return report(DOCS.answer, NEWS.answer)
        return report(DOCS.answer) if ANALYSE in tasks else None

    @property
    def cites(self) -> list[str]:
        """The words that the answer's sources have to quote."""
        said = {"rag": [each.quote for each in DOCS.passages], "web": [NEWS.pages[0].quote]}
        return [quote for agent in self.agents for quote in said.get(agent, [])]


def _docs() -> dict[str, Any]:
    return planned("documents", "rag", DOCS.task)


def _index(*needs: str) -> dict[str, Any]:
    return planned("index", "web", NEWS.task, *needs)


def _code(task: str, *needs: str) -> dict[str, Any]:
    return {**planned("analysis", "code", task, *needs), "tool_name": "execute_code"}


def _mail(*needs: str, **inputs: Any) -> dict[str, Any]:
    return {
        **planned("mail", "mail", MAIL, *needs, to=MANAGER, **inputs),
        "tool_name": "send_email",
    }


CHAINS = {
    "parallel": Chain(
        "Search my docs for Q3 revenue AND find the latest news about our competitor",
        (_docs(), _index()),
    ),
    "chain": Chain(
        "Find sales data in my docs, write Python code to analyze the trend, then email the "
        "report to my manager",
        (_docs(), _code(ANALYSE, "documents"), _mail("analysis")),
    ),
    "diamond": Chain(
        "Search my docs for the budget, also find public benchmarks online, then write code to "
        "compare them",
        (_docs(), _index(), _code(COMPARE, "documents", "index")),
    ),
    "fan-out": Chain(
        "Search my docs for the budget; from it analyse the trend, and find public benchmarks",
        (_docs(), _code(ANALYSE, "documents"), _index("documents")),
    ),
    "diamond to a mail": Chain(
        "Search my docs, compare them with public benchmarks and a program, mail what comes out",
        (
            _docs(),
            _index("documents"),
            _code(COMPARE, "documents", "index"),
            _mail("analysis", "index", attachments=f"analysis/{REPORT}"),
        ),
    ),
}


def replies() -> Iterator[Fixture]:
    """Yield all replies."""
    yield from rag_replies("chains", DOCS)
    yield from web_replies("chains", NEWS)
    yield from _program(ANALYSE, PROGRAM)
    yield from _program(COMPARE, COMPARES)
    words = {"subject": "Report", "body": "Dear manager,\n\nhere is the report.\n\nAda"}
    listed = ["### Files of earlier steps", f"- analysis/{REPORT}: application/pdf"]
    chosen = {**words, "attachments": [f"analysis/{REPORT}"]}
    yield fixture("words and files", listed, schema="MailWithFiles", json=chosen)
    yield fixture("words", ["### From", "### To"], schema="MailText", json=words)
    sent = {"result": "The mail was sent."}
    yield fixture("mail summary", ["### Action"], schema="MailSummary", json=sent)
    for chain in CHAINS.values():
        yield plan_reply(chain.question, *chain.steps)
        yield _composed(chain)


def _program(task: str, code: str) -> Iterator[Fixture]:
    section = [f"### Task\n{task}"]
    proposal = {"explanation": "Writes a report of the figures.", "code": code}
    yield fixture(f"program: {task}", section, schema="CodeProposal", json=proposal)
    summary = {"answer": "The largest figure is in the report."}
    yield fixture(f"summary: {task}", section, schema="CodeSummary", json=summary)


_SAID = {"code": f"The largest figure is in {REPORT}.", "mail": "The mail was sent."}


def _composed(chain: Chain) -> Fixture:
    """The answer, whose citations are numbered as the prompt numbers them."""
    sentences, captures = [], {}
    for agent in chain.agents:
        if agent in _SAID:
            sentences.append(_SAID[agent])
            continue
        said = DOCS.answer if agent == "rag" else NEWS.answer
        for number in range(1, said.count("[") + 1):
            key = f"{agent}{number}"
            before = said[: said.index(f" [{number}]")].rpartition("] ")[2][-40:]
            captures[key] = re.escape(before) + r" \[(\d+)\]"
            said = said.replace(f"[{number}]", f"[${{{key}}}]")
        sentences.append(said)
    section = [composer_section(chain.question)]
    return fixture(f"answer: {chain.question}", section, text=" ".join(sentences), capture=captures)
