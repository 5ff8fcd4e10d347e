"""Text of files and mails, by the encoding they are in."""

from bos_encodings.reading import NotText, TextReading, read_text

__all__ = ["NotText", "TextReading", "read_text"]
