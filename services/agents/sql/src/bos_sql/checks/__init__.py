"""Checks of a result by further small queries, and what they say of it."""
