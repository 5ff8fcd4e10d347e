"""Queries over a user's files: CSV, Parquet and XLSX as tables, in a locked DuckDB per query."""
