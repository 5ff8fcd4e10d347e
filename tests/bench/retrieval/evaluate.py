"""Evaluates retrieval of documents on the judged set: rankings by kind of question, refusals.

    make bench NAME=retrieval

Runs the product's own parts: its embedding model, its embedded index and its fusion, over the
passages as ingestion hands them to the index. Parameters are chosen on the half ``dev`` alone:
those whose worst kind of question gains most on the better leg in nDCG@10, or loses least; of
equal ones the best on average. Both halves are reported.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from judged_set import JudgedPassage, Kind, Question, Split, passages, questions
from measures import interval, mean, ndcg, recall, reciprocal_rank, refused, threshold

from bos.documents.v1 import Chunk, Passage
from bos_chassis.telemetry import Telemetry
from bos_documents.context import in_context
from bos_documents.embedding.local import LocalEmbedder
from bos_documents.index.embedded import EmbeddedIndex
from bos_documents.index.port import IndexedChunk, IndexFilter, Legs
from bos_documents.index.stop_words import StopWords
from bos_documents.search.coverage import content_words, coverage
from bos_documents.search.fusion import Fused, FusionRule, Method, fuse
from bos_documents.search.identifiers import folded
from bos_rag.passages import by_rule, relevance, relevant

CANDIDATES = 50
"""Of each leg, as the documents service asks for by default."""
RERANKED = 20
"""Passages that the document agent asks for by default."""
ANSWERED = 0.96
"""Of the answerable questions of ``dev``, at least; a little more than what is aimed at."""
_NEVER = 9.0
"""Above every relevance."""
ANSWERABLE = (Kind.PARAPHRASE, Kind.IDENTIFIER, Kind.PLAIN)
WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
BOOSTS = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Found:
    """What both legs found for a question, and how much of it the words cover."""

    question: Question
    legs: Legs
    coverage: float


@dataclass(frozen=True)
class System:
    """A way to rank."""

    name: str
    rule: FusionRule
    rerank: bool = False


@dataclass(frozen=True)
class Corpus:
    """Passages as they were indexed."""

    texts: Mapping[str, str]
    folded: Mapping[str, str]
    found: Sequence[Found]


def chunk_id(passage_id: str) -> str:
    """The id in the index, which takes UUIDs."""
    return str(uuid5(NAMESPACE_URL, passage_id))


def contextual(passage: JudgedPassage) -> str:
    """The passage under the title of its document and its section, as ingestion indexes it."""
    return in_context(passage.document, [passage.section], passage.text)


def alone(passage: JudgedPassage) -> str:
    """The passage as it stands."""
    return passage.text


async def searched(text_of: Callable[[JudgedPassage], str]) -> Corpus:
    """Index all passages and ask all questions.

    Args:
        text_of: What of a passage is embedded and counted.
    """
    judged, embedder = passages(), LocalEmbedder()
    texts = [text_of(each) for each in judged]
    vectors = await embedder.embed_passages(texts)
    ids = [chunk_id(each.id) for each in judged]
    read = {key: folded(text) for key, text in zip(ids, texts, strict=True)}
    stop_words, found = StopWords(), []
    with tempfile.TemporaryDirectory(prefix="bos-eval-") as folder:
        index = EmbeddedIndex(Path(folder), Telemetry.for_tests().logger("evaluation"))
        chunks = [
            IndexedChunk(chunk_id(each.id), chunk_id(each.document), vector, text)
            for each, vector, text in zip(judged, vectors, texts, strict=True)
        ]
        for first in range(0, len(chunks), 64):
            await index.upsert("ada", embedder.model, chunks[first : first + 64])
        for question in questions():
            legs = await index.search(
                "ada",
                embedder.model,
                dense=await embedder.embed_query(question.text),
                text=question.text,
                filter=IndexFilter(),
                limit=CANDIDATES,
            )
            candidates = {
                each.chunk_id: read[each.chunk_id] for each in (*legs.dense, *legs.sparse)
            }
            words = content_words(question.text, stop_words)
            found.append(Found(question, legs, coverage(words, legs.sparse, candidates)))
        await index.close()
    await embedder.close()
    return Corpus(dict(zip(ids, texts, strict=True)), read, found)


def ranking(corpus: Corpus, found: Found, system: System) -> list[str]:
    """Chunk ids, best first."""
    fused = _fused(corpus, found, system.rule)
    if not system.rerank:
        return [each.chunk_id for each in fused]
    first, rest = fused[:RERANKED], fused[RERANKED:]
    again = by_rule(as_passages(corpus, first), found.question.text)
    return [each.chunk.chunk_id for each in again] + [each.chunk_id for each in rest]


def _fused(corpus: Corpus, found: Found, rule: FusionRule) -> list[Fused]:
    return fuse(
        found.legs,
        rule,
        question=found.question.text,
        texts=corpus.folded,
        coverage=found.coverage,
    )


@dataclass(frozen=True)
class Scores:
    """Measures of the questions of one kind and split."""

    ndcg: Sequence[float]
    recall: Sequence[float]
    rank: Sequence[float]


def scores(corpus: Corpus, system: System, kind: Kind, split: Split) -> Scores:
    """Measures of one way to rank."""
    gained, recalled, ranks = [], [], []
    for found in corpus.found:
        question = found.question
        if (question.kind, question.split) != (kind, split):
            continue
        order = ranking(corpus, found, system)
        grades = {chunk_id(key): grade for key, grade in question.relevant.items()}
        gained.append(ndcg(order, grades))
        recalled.append(recall(order, grades))
        ranks.append(reciprocal_rank(order, grades))
    return Scores(gained, recalled, ranks)


def ndcg_of(corpus: Corpus, rule: FusionRule, split: Split) -> dict[Kind, float]:
    """Average nDCG@10 by kind."""
    system = System("", rule)
    return {kind: mean(scores(corpus, system, kind, split).ndcg) for kind in ANSWERABLE}


def chosen(corpus: Corpus) -> tuple[FusionRule, float]:
    """The blend that gains most on the better leg where it gains least, on ``dev``."""
    legs = [
        ndcg_of(corpus, FusionRule(method, identifier_boost=0), Split.DEV)
        for method in (Method.DENSE, Method.SPARSE)
    ]

    def gain(rule: FusionRule) -> tuple[float, float]:
        got = ndcg_of(corpus, rule, Split.DEV)
        worst = min(got[kind] - max(leg[kind] for leg in legs) for kind in ANSWERABLE)
        return round(worst, 4), mean(list(got.values()))

    rules = [
        FusionRule(Method.BLEND, dense_weight=weight, identifier_boost=boost)
        for weight, boost in product(WEIGHTS, BOOSTS)
    ]
    best = max(rules, key=gain)
    return best, gain(best)[0]


def systems(best: FusionRule) -> list[System]:
    """All ways to rank that are compared."""
    plain = FusionRule(Method.RRF, identifier_boost=0)
    unboosted = FusionRule(Method.BLEND, dense_weight=best.dense_weight, identifier_boost=0)
    return [
        System("BM25", FusionRule(Method.SPARSE, identifier_boost=0)),
        System("dense", FusionRule(Method.DENSE, identifier_boost=0)),
        System("RRF", plain),
        System("RRF, reranked by rule", plain, rerank=True),
        System("RRF, boost 1", FusionRule(Method.RRF)),
        System(f"blend {best.dense_weight}", unboosted),
        System(f"blend {best.dense_weight}, boost {best.identifier_boost}", best),
        System("default", FusionRule()),
        System("default, reranked by rule", FusionRule(), rerank=True),
    ]


def found_by(corpus: Corpus, found: Found) -> list[Passage]:
    """The passages of a search, as the document agent gets them."""
    return as_passages(corpus, _fused(corpus, found, FusionRule())[:RERANKED])


def as_passages(corpus: Corpus, fused: Sequence[Fused]) -> list[Passage]:
    """What a search returns for these."""
    got = []
    for each in fused:
        passage = Passage(chunk=Chunk(chunk_id=each.chunk_id, text=corpus.texts[each.chunk_id]))
        if each.dense is not None:
            passage.dense_score = each.dense
        got.append(passage)
    return got


def closeness(corpus: Corpus, found: Found) -> float:
    """Cosine similarity of the nearest passage."""
    return max((each.score for each in found.legs.dense), default=-1.0)


def certainty(corpus: Corpus, found: Found) -> float:
    """What the document agent refuses by: exact terms first, then similarity and coverage."""
    passages, question = found_by(corpus, found), found.question.text
    if relevant(passages, question, found.coverage, _NEVER):
        return _NEVER
    if not relevant(passages, question, found.coverage, -_NEVER):
        return -_NEVER
    return relevance(passages, found.coverage)


def show_refusals(corpus: Corpus) -> None:
    """How well a score separates unanswerable questions; the threshold is chosen on ``dev``."""
    for name, score in (("nearest passage", closeness), ("document agent", certainty)):
        by = {
            (split, answerable): [
                score(corpus, found)
                for found in corpus.found
                if found.question.split is split
                and (found.question.kind is not Kind.UNANSWERABLE) is answerable
            ]
            for split in Split
            for answerable in (True, False)
        }
        below = threshold(by[Split.DEV, True], ANSWERED)
        print(f"| {name} | {below:.3f} ", end="")
        for split in Split:
            answered = 1 - refused(by[split, True], below)
            print(f"| {answered:.2f} | {refused(by[split, False], below):.2f} ", end="")
        print("|")


def show(name: str, corpus: Corpus) -> None:
    """Print the tables of one way to index."""
    best, gain = chosen(corpus)
    print(f"\n## {name}\n\nChosen on dev: {best}, worst gain {gain:+.3f}\n")
    for split in Split:
        print(
            f"| {split} | " + " | ".join(f"{kind} nDCG@10, recall@20, MRR" for kind in ANSWERABLE)
        )
        print("|---" * (len(ANSWERABLE) + 1) + "|")
        for system in systems(best):
            print(f"| {system.name} ", end="")
            for kind in ANSWERABLE:
                got = scores(corpus, system, kind, split)
                low, high = interval(got.ndcg)
                print(
                    f"| {mean(got.ndcg):.3f} ({low:.2f} to {high:.2f}) {mean(got.recall):.3f} "
                    f"{mean(got.rank):.3f} ",
                    end="",
                )
            print("|")
        print()
    print("| refuse by | threshold | dev: answered | refused | held: answered | refused |")
    print("|---|---|---|---|---|---|")
    show_refusals(corpus)


async def main() -> None:
    """Evaluate both ways to index."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name, text_of in (("Passages alone", alone), ("Passages in context", contextual)):
        show(name, await searched(text_of))


if __name__ == "__main__":
    asyncio.run(main())
