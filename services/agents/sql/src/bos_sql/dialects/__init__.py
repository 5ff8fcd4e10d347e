"""Variants of a query: translations into the other SQL dialects."""
