"""Metadata index: search over tables, fields, joins and metrics, and schema excerpts."""
