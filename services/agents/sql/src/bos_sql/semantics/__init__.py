"""Semantic layer: named metrics, where a question names them, and whether a query computes them."""
