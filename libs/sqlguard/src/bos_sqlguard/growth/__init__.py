"""Bounds of what a query makes out of nothing, worked out before it runs."""

from bos_sqlguard.growth.check import GrowthCheck

__all__ = ["GrowthCheck"]
