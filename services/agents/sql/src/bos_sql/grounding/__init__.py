"""The metadata index: what a database holds, searchable, and the part one question needs."""
