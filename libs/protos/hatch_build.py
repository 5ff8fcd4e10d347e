"""Hatchling hook: installing bos-protos builds its stubs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateStubs(BuildHookInterface[Any]):
    """Run the generator before the wheel (or the editable install) is assembled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate into ``src/`` beside this file."""
        sys.path.insert(0, str(Path(self.root)))
        from generate import generate

        generate()
