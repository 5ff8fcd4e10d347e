"""Embeddings by an ONNX model in this process."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bos_documents.embedding import shipped_model
from bos_documents.embedding.shipped_model import (
    ModelFiles,
    load_tokenizer,
    read_verified,
    shipped_files,
)
from bos_errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bos_documents.embedding.port import Vector

_BATCH: Final = 4
"""Windows at once; larger batches take longer per window on a CPU."""
_MAX_WINDOWS: Final = 32
_MAX_CHARS: Final = 65_536
_MAX_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class _Window:
    """A part of a text that the model reads at once."""

    text: int
    ids: tuple[int, ...]


class LocalEmbedder:
    """The shipped embedding model; implements ``Embedder``.

    A text longer than the model's window is read in windows, whose embeddings are averaged by
    their tokens. At most 65,536 characters and 32 windows of a text count; chunks are shorter.

    Args:
        files: The model's files; None: the shipped ones, looked for at the first use.
        threads: Batches of passages at once, each in a thread; 0: as many as there are processors,
            up to four.
    """

    model = shipped_model.MODEL
    dimension = shipped_model.DIMENSION
    in_process = True

    def __init__(self, files: ModelFiles | None = None, *, threads: int = 0) -> None:
        self._files = files
        self._threads = threads or min(os.cpu_count() or 1, _MAX_THREADS)
        # A query waits for no batch of passages but shares the processors with them.
        self._passages = ThreadPoolExecutor(self._threads, thread_name_prefix="embed-passages")
        self._queries = ThreadPoolExecutor(1, thread_name_prefix="embed-query")
        self._loading = asyncio.Lock()
        self._loaded: _Loaded | None = None
        self._closed = False

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Embeddings of what is searched, in the order of ``texts``.

        Raises:
            ConfigurationError: the model's files cannot be used.
            Unavailable: it is closed.
        """
        return await self._embed(texts, self._passages)

    async def embed_query(self, text: str) -> Vector:
        """Embedding of a question, not queued behind passages.

        Raises:
            ConfigurationError: the model's files cannot be used.
            Unavailable: it is closed.
        """
        loaded = await self._load()
        self._check_open()
        # One hand-over to the thread and not two, which a search would wait for.
        run = asyncio.get_running_loop().run_in_executor
        vector = await run(self._queries, loaded.embed_short, text)
        return (await self._embed([text], self._queries))[0] if vector is None else vector

    async def close(self) -> None:
        """End the threads after the batch that they are at."""
        self._closed = True
        for pool in (self._passages, self._queries):
            pool.shutdown(wait=False, cancel_futures=True)
        self._loaded = None

    async def _embed(self, texts: Sequence[str], pool: Executor) -> list[Vector]:
        loaded = await self._load()
        run = asyncio.get_running_loop().run_in_executor
        windows: list[_Window] = []
        for first in range(0, len(texts), _BATCH):
            few = texts[first : first + _BATCH]
            self._check_open()
            windows += await run(pool, loaded.windows, few, first)
        # Of like lengths together: a batch is padded to its longest.
        windows.sort(key=lambda window: len(window.ids))
        sums = np.zeros((len(texts), self.dimension), dtype=np.float64)
        batches = [windows[first : first + _BATCH] for first in range(0, len(windows), _BATCH)]
        # No more at once than there are threads, and all of them are waited for: a cancelled call
        # ends with the batches it is at.
        for first in range(0, len(batches), self._threads):
            part = batches[first : first + self._threads]
            self._check_open()
            weighted = await asyncio.gather(*(run(pool, loaded.embed, batch) for batch in part))
            for batch, vectors in zip(part, weighted, strict=True):
                for window, vector in zip(batch, vectors, strict=True):
                    sums[window.text] += vector
        return _units(sums)

    async def _load(self) -> _Loaded:
        if self._loaded is not None:
            return self._loaded
        async with self._loading:
            self._check_open()
            if self._loaded is None:
                run = asyncio.get_running_loop().run_in_executor
                self._loaded = await run(self._queries, _load, self._files)
        return self._loaded

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("The embedding model is closed.", reason="EMBEDDING_CLOSED")


class _Loaded:
    """The model in memory; its methods block."""

    def __init__(self, session: Any, tokenizer: Any) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._begin = tokenizer.token_to_id("[CLS]")
        self._end = tokenizer.token_to_id("[SEP]")

    def windows(self, texts: Sequence[str], first: int) -> list[_Window]:
        """The windows of texts, numbered from ``first``."""
        size = shipped_model.WINDOW_TOKENS - 2
        short = [text[:_MAX_CHARS].replace("\x00", " ") for text in texts]
        encoded = self._tokenizer.encode_batch(short, add_special_tokens=False)
        found = []
        for number, encoding in enumerate(encoded, first):
            ids = encoding.ids[: _MAX_WINDOWS * size]
            for start in range(0, len(ids) or 1, size):
                window = (self._begin, *ids[start : start + size], self._end)
                found.append(_Window(number, window))
        return found

    def embed_short(self, text: str) -> Vector | None:
        """The embedding of a text that the model reads at once; None for a longer one."""
        windows = self.windows([text], 0)
        return _units(self.embed(windows))[0] if len(windows) == 1 else None

    def embed(self, batch: Sequence[_Window]) -> NDArray[np.float64]:
        """Sums of the vectors of each window's tokens."""
        longest = max(len(window.ids) for window in batch)
        ids = np.zeros((len(batch), longest), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, window in enumerate(batch):
            ids[row, : len(window.ids)] = window.ids
            mask[row, : len(window.ids)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run(["last_hidden_state"], given)
        sums: NDArray[np.float64] = (hidden * mask[:, :, None]).sum(axis=1, dtype=np.float64)
        return sums


def _units(sums: NDArray[np.float64]) -> list[Vector]:
    """Each row at length 1."""
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    units = (sums / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return [tuple(row) for row in units.tolist()]


def _load(files: ModelFiles | None) -> _Loaded:
    # Half a second; a service that uses an endpoint never pays it.
    import onnxruntime as onnx

    files = files or shipped_files()
    options: Any = onnx.SessionOptions()
    # One thread a batch: with two, a query takes as long, and passages nearly twice as long as with
    # two batches at once.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    session = onnx.InferenceSession(
        read_verified(files.model, files.model_sha256),
        options,
        providers=["CPUExecutionProvider"],
    )
    return _Loaded(session, load_tokenizer(files))
