"""Process entry of the mail agent: ``python -m bos_mail``."""

from __future__ import annotations

from bos_agentkit import serve_agent
from bos_mail.card import NAME
from bos_mail.service import serve
from bos_mail.settings import MailSettings

if __name__ == "__main__":
    serve_agent(NAME, MailSettings, serve)
