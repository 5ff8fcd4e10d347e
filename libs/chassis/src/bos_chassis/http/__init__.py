"""The one way out: an HTTP client that asks a policy before every connection.

::

    policy = HttpPolicy.load(hosts=("api.example.com", "*.example.org"))
    async with HttpClient(policy, telemetry) as http:
        response = await http.request("GET", "https://api.example.com/v1/orders?limit=5")

Needs the extra ``bos-chassis[http]``.
"""

from bos_chassis.http.client import HttpClient
from bos_chassis.http.errors import Failure, HttpFailed, HttpRefused, HttpTimedOut, Rule
from bos_chassis.http.policy import HttpPolicy
from bos_chassis.http.resolver import Resolver, SystemResolver
from bos_chassis.http.response import HttpResponse

__all__ = [
    "Failure",
    "HttpClient",
    "HttpFailed",
    "HttpPolicy",
    "HttpRefused",
    "HttpResponse",
    "HttpTimedOut",
    "Resolver",
    "Rule",
    "SystemResolver",
]
