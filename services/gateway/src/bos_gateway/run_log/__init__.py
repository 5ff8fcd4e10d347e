"""The run log in PostgreSQL: its writer, its readers, and what is kept beside it."""
