"""The one way out: an HTTP client that asks a policy before every connection.

::

    policy = HttpPolicy.load(hosts=("api.example.com", "*.example.org"))
    async with HttpClient(policy, telemetry) as http:
        response = await http.request("GET", "https://api.example.com/v1/orders?limit=5")
"""

from bos_http.client import HttpClient
from bos_http.errors import Failure, HttpFailed, HttpRefused, HttpTimedOut, Rule
from bos_http.issuers import issuer_document
from bos_http.policy import HttpPolicy
from bos_http.resolver import Resolver, SystemResolver
from bos_http.response import HttpResponse, HttpStream
from bos_http.url import Target

__all__ = [
    "Failure",
    "HttpClient",
    "HttpFailed",
    "HttpPolicy",
    "HttpRefused",
    "HttpResponse",
    "HttpStream",
    "HttpTimedOut",
    "Resolver",
    "Rule",
    "SystemResolver",
    "Target",
    "issuer_document",
]
