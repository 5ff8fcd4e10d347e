from __future__ import annotations


class OutputLimitExceeded(Exception):
    """Raised into the interpreter to end a program that prints too much."""


class Output:
    """What a program prints, up to ``limit`` bytes of UTF-8 over both streams."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self.exceeded = False

    def write(self, stream: str, text: str) -> None:
        """Keep ``text``.

        Raises:
            OutputLimitExceeded: Not all of it fits; what fits is kept.
        """
        self.write_bytes(stream, text.encode("utf-8", "replace"))

    def write_bytes(self, stream: str, data: bytes) -> None:
        """Keep ``data``, UTF-8 or not; raises what :meth:`write` raises."""
        self._parts[stream].append(data[: self._left])
        if len(data) > self._left:
            self._left = 0
            self.exceeded = True
            raise OutputLimitExceeded
        self._left -= len(data)

    def texts(self) -> tuple[str, str]:
        """Standard output and standard error."""
        # A cut can fall into the middle of a character, which is left out.
        out, err = (b"".join(parts).decode("utf-8", "ignore") for parts in self._parts.values())
        return out, err
