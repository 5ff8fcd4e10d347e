"""Spans: names of their attributes, and spans that are exported from a record instead of live."""
