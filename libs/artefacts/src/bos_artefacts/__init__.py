"""Blobs by digest, owned by a user and a run."""

from bos_artefacts.objects import ObjectArtefacts, open_artefacts
from bos_artefacts.owner import Owner
from bos_artefacts.store import (
    Artefact,
    ArtefactDamaged,
    ArtefactMissing,
    ArtefactStore,
    ArtefactTooLarge,
)

__all__ = [
    "Artefact",
    "ArtefactDamaged",
    "ArtefactMissing",
    "ArtefactStore",
    "ArtefactTooLarge",
    "ObjectArtefacts",
    "Owner",
    "open_artefacts",
]
