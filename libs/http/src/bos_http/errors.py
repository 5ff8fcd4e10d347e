"""How an outgoing call ends when it does not end with a response.

Messages are constant sentences: neither a host nor an address, which a redirect or a resolver may
have brought in, ever reaches the caller through them.
"""

from __future__ import annotations

from enum import StrEnum

from bos_errors import DeadlineExceeded, PermissionDenied, Unavailable


class Rule(StrEnum):
    """What was broken. The value is stable: metrics, traces and error metadata carry it."""

    URL_MALFORMED = "url_malformed"
    URL_TOO_LONG = "url_too_long"
    URL_CHARACTERS = "url_characters"
    SCHEME = "scheme"
    USERINFO = "userinfo"
    HOST_MALFORMED = "host_malformed"
    HOST_AMBIGUOUS = "host_ambiguous"
    HOST_METADATA = "host_metadata"
    HOST_INTERNAL = "host_internal"
    HOST_NOT_ALLOWED = "host_not_allowed"
    PORT = "port"
    ADDRESS_LOOPBACK = "address_loopback"
    ADDRESS_PRIVATE = "address_private"
    ADDRESS_LINK_LOCAL = "address_link_local"
    ADDRESS_SHARED = "address_shared"
    ADDRESS_MULTICAST = "address_multicast"
    ADDRESS_RESERVED = "address_reserved"
    ADDRESS_UNSPECIFIED = "address_unspecified"
    ADDRESS_DOCUMENTATION = "address_documentation"
    ADDRESS_EMBEDDED = "address_embedded"
    ADDRESS_METADATA = "address_metadata"
    ADDRESS_MALFORMED = "address_malformed"
    ADDRESS_NOT_ALLOWED = "address_not_allowed"
    METHOD = "method"
    REQUEST_HEADER = "request_header"
    REQUEST_HEADERS_TOO_LARGE = "request_headers_too_large"
    REQUEST_BODY_TOO_LARGE = "request_body_too_large"
    REDIRECT_LIMIT = "redirect_limit"
    REDIRECT_AMBIGUOUS = "redirect_ambiguous"
    REDIRECT_DOWNGRADE = "redirect_downgrade"
    REDIRECT_INWARD = "redirect_inward"
    REDIRECT_REPEATS_BODY = "redirect_repeats_body"
    RESPONSE_HEADERS_TOO_LARGE = "response_headers_too_large"
    RESPONSE_BODY_TOO_LARGE = "response_body_too_large"
    RESPONSE_COMPRESSION = "response_compression"
    RESPONSE_ENCODING = "response_encoding"
    RESPONSE_CONTENT_TYPE = "response_content_type"


_ADDRESS = "The host leads to an address that may not be called."
_SENTENCES = {
    Rule.URL_MALFORMED: "The URL is not well formed; write scheme://host/path.",
    Rule.URL_TOO_LONG: "The URL is too long.",
    Rule.URL_CHARACTERS: "The URL holds spaces, control characters or backslashes; encode them.",
    Rule.SCHEME: "The URL's scheme is not allowed.",
    Rule.USERINFO: "The URL holds a user or password; send credentials in a header.",
    Rule.HOST_MALFORMED: "The URL's host is not a valid name or address.",
    Rule.HOST_AMBIGUOUS: "The URL's host is a number that is not a plain dotted IPv4 address.",
    Rule.HOST_METADATA: "The host serves cloud metadata, which is never called.",
    Rule.HOST_INTERNAL: "The host is an internal name that may not be called.",
    Rule.HOST_NOT_ALLOWED: "The host is not among the allowed hosts.",
    Rule.PORT: "The port is not among the allowed ports.",
    Rule.METHOD: "The HTTP method is not allowed.",
    Rule.REQUEST_HEADER: "A request header has a forbidden name or forbidden characters.",
    Rule.REQUEST_HEADERS_TOO_LARGE: "The request's headers are too large.",
    Rule.REQUEST_BODY_TOO_LARGE: "The request's body is too large.",
    Rule.REDIRECT_LIMIT: "The server redirects too many times.",
    Rule.REDIRECT_AMBIGUOUS: "The server redirects to several places at once.",
    Rule.REDIRECT_DOWNGRADE: "The server redirects from https to http.",
    Rule.REDIRECT_INWARD: "The server redirects to an internal host.",
    Rule.REDIRECT_REPEATS_BODY: "The server asks to repeat a request that may change things.",
    Rule.RESPONSE_HEADERS_TOO_LARGE: "The response's headers are too large.",
    Rule.RESPONSE_BODY_TOO_LARGE: "The response's body is too large.",
    Rule.RESPONSE_COMPRESSION: "The response's body expands too much.",
    Rule.RESPONSE_ENCODING: "The response's content encoding is not supported.",
    Rule.RESPONSE_CONTENT_TYPE: "The response's content type is not allowed.",
}


class Failure(StrEnum):
    """Where a call broke that was allowed. The value is stable, as with :class:`Rule`."""

    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    PROTOCOL = "protocol"
    INTERRUPTED = "interrupted"


_FAILURES = {
    Failure.RESOLVE: "The host's name cannot be resolved.",
    Failure.CONNECT: "The host does not accept the connection.",
    Failure.TLS: "A secure connection to the host cannot be made; its certificate may be wrong.",
    Failure.PROTOCOL: "The host's answer is not valid HTTP.",
    Failure.INTERRUPTED: "The host ended the connection before its answer was complete.",
}


class HttpRefused(PermissionDenied):
    """The policy forbids the call, or what came back of it; the same call is refused again.

    The rule is in ``metadata["rule"]`` rather than in the reason, so that the class survives gRPC.
    """

    default_reason = "HTTP_REFUSED"

    def __init__(self, rule: Rule) -> None:
        super().__init__(_SENTENCES.get(rule, _ADDRESS), metadata={"rule": rule.value})

    @property
    def rule(self) -> Rule:
        """The rule that was broken."""
        return Rule(self.metadata["rule"])


class HttpFailed(Unavailable):
    """The call was allowed and did not work out; a later one may. No response was received."""

    default_reason = "HTTP_FAILED"

    def __init__(self, failure: Failure) -> None:
        super().__init__(_FAILURES[failure], metadata={"failure": failure.value})

    @property
    def failure(self) -> Failure:
        """Where it broke."""
        return Failure(self.metadata["failure"])


class HttpTimedOut(DeadlineExceeded):
    """The host did not connect, go on, or finish in time; or the time of our own caller is up."""

    default_reason = "HTTP_TIMED_OUT"

    def __init__(self) -> None:
        super().__init__("The host did not answer in time.")
