"""Endpoints of servers of others, as an operator configures them, and calls of them by an SDK."""

from bos_http.endpoints.endpoint import Endpoint
from bos_http.endpoints.exchange import Exchange, received_headers, sent_headers

__all__ = ["Endpoint", "Exchange", "received_headers", "sent_headers"]
