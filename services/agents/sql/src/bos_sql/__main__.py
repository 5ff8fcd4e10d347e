"""Process entry of the SQL agent: ``python -m bos_sql``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_sql.service import NAME, serve
from bos_sql.settings import SqlSettings

if __name__ == "__main__":
    serve_agent(NAME, SqlSettings, serve)
