"""HTTP servers of services: TLS, time limits and numbers of connections."""

from bos_webserver.connections import CALLERS, KNOWN, ConnectionLimits
from bos_webserver.server import WebServer, http_server
from bos_webserver.settings import WebServerSettings

__all__ = ["CALLERS", "KNOWN", "ConnectionLimits", "WebServer", "WebServerSettings", "http_server"]
