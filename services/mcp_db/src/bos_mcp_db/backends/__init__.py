"""Database backends: PostgreSQL, SQLite and SQL Server behind one port."""
