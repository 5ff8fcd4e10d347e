"""Full-text ranking of short texts, such as tables of a schema or endpoints of an API."""

from bos_agentkit.ranking.bm25 import Ranking, Weighted
from bos_agentkit.ranking.tokenise import terms, whole, words

__all__ = ["Ranking", "Weighted", "terms", "whole", "words"]
