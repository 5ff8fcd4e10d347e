"""Bounds of what a query makes out of nothing, worked out before it runs."""

from bos_sqlguard.growth.check import GrowthCheck
from bos_sqlguard.growth.keeping import Kept, kept_by

__all__ = ["GrowthCheck", "Kept", "kept_by"]
