"""Prompt texts kept as files beside the code that fills them in, to be read and diffed.

A package of prompts holds ``__init__.py`` and one ``NAME.md`` per text::

    _ROLE = prompt_file(__name__, "role")
    system(_ROLE.fill(max_steps="12"))

Placeholders are ``$name`` or ``${name}``, a literal dollar sign is ``$$`` (``string.Template``).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from string import Template


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The text of one prompt file."""

    name: str
    text: str

    def fill(self, **values: str) -> str:
        """The text with its placeholders replaced.

        Raises:
            ValueError: a placeholder has no value, or a value no placeholder.
        """
        template = Template(self.text)
        placeholders = set(template.get_identifiers())
        if placeholders != values.keys():
            odd = sorted(placeholders ^ values.keys())
            raise ValueError(f"prompt file {self.name}: placeholders and values differ: {odd}")
        return template.substitute(values)


def prompt_file(package: str, name: str) -> PromptFile:
    """Read ``name``.md of ``package``; white space around the text is not part of it.

    Raises:
        FileNotFoundError: there is no such file.
    """
    text = files(package).joinpath(f"{name}.md").read_text(encoding="utf-8")
    return PromptFile(f"{package}/{name}.md", text.strip())
