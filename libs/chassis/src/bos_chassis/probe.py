"""Health probe of a service, for container engines that run a command.

    python -m bos_chassis.probe grpc://localhost:8080
    python -m bos_chassis.probe grpcs://localhost:8080 --certificates /run/secrets/bos
    python -m bos_chassis.probe https://localhost:8080/healthz --certificates /run/secrets/bos

It exits with 0 if the service serves, else with 1 and one line that says why. Imports are few, as
it runs every few seconds in every container; Kubernetes asks gRPC health by itself.
"""

from __future__ import annotations

import argparse
import ssl
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

_CHECK = "/grpc.health.v1.Health/Check"
# HealthCheckResponse{status: SERVING} on the wire, so that protobuf need not be imported.
_SERVING = b"\x08\x01"
_TIMEOUT_S = 4.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the probe: 0 if the service serves, 1 if not, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bos_chassis.probe")
    parser.add_argument("url", help="grpc://, grpcs://, http:// or https:// address")
    parser.add_argument(
        "--certificates",
        type=Path,
        help="folder with ca.crt, tls.crt and tls.key, which are shown to the service",
    )
    parser.add_argument("--key", help="bearer token that an HTTP service demands")
    parser.add_argument("--timeout", type=float, default=_TIMEOUT_S, help="seconds")
    given = parser.parse_args(arguments)
    scheme = urlsplit(given.url).scheme
    if scheme not in ("grpc", "grpcs", "http", "https"):
        parser.error(f"{given.url}: write grpc://, grpcs://, http:// or https://")
    if scheme in ("grpcs", "https") and given.certificates is None:
        parser.error(f"{given.url}: needs --certificates")
    if scheme.startswith("http"):
        problem = _ask_http(given.url, given.certificates, given.timeout, given.key)
    else:
        problem = _ask_grpc(given.url, given.certificates, given.timeout)
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


def _ask_grpc(url: str, certificates: Path | None, timeout_s: float) -> str:
    """What is wrong with the gRPC service; empty if it serves."""
    import grpc  # not needed for HTTP

    parts = urlsplit(url)
    try:
        if parts.scheme == "grpcs":
            assert certificates is not None
            names = ("ca.crt", "tls.key", "tls.crt")
            shown = grpc.ssl_channel_credentials(*((certificates / n).read_bytes() for n in names))
            channel = grpc.secure_channel(parts.netloc, shown)
        else:
            channel = grpc.insecure_channel(parts.netloc)
        with channel:
            check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_CHECK)
            status = check(b"", timeout=timeout_s)
    except grpc.RpcError as error:
        return f"{url}: {error.code().name}"
    except OSError as error:
        return f"{url}: {error}"
    return "" if status == _SERVING else f"{url}: NOT_SERVING"


def _ask_http(url: str, certificates: Path | None, timeout_s: float, key: str | None) -> str:
    """What is wrong with the HTTP service; empty if it answers 200."""
    try:
        context = None
        if certificates is not None:
            context = ssl.create_default_context(cafile=certificates / "ca.crt")
            context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
        # Without the proxies of the environment: what is asked is in this container.
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        opener = urllib.request.build_opener(*handlers)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        asked = urllib.request.Request(url, headers=headers)  # noqa: S310  main() checks the scheme
        with opener.open(asked, timeout=timeout_s) as response:
            return "" if response.status == 200 else f"{url}: {response.status}"
    except OSError as error:
        return f"{url}: {error}"


if __name__ == "__main__":
    sys.exit(main())
