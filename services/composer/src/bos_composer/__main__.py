"""Entry point of ``python -m bos_composer``."""

from __future__ import annotations

from bos_chassis.process import main, service_auth
from bos_composer.service import serve
from bos_composer.settings import ComposerSettings
from bos_llm import open_models

if __name__ == "__main__":
    main("composer", ComposerSettings, serve, auth=service_auth, models=open_models)
