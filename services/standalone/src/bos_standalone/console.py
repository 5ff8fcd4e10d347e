"""Address of the web console, with a link that signs the local user's browser in once."""

from __future__ import annotations

import asyncio
import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

from bos_client.connection import Connection, NoConnection
from bos_client.local import FILE, NotBelieved, read_believed
from bos_errors import Unavailable

_TIMEOUT_S = 10.0
_MOST_BYTES = 64 * 1024
_LINK_PATH = "/v1/browserSession:createLink"


async def console_address(rest_url: str, api_key: str) -> str:
    """Address that opens the console; with a key, one that signs its browser in, once.

    The code stands in the fragment, which browsers do not send, log or pass on.

    Args:
        rest_url: Base URL of REST on this machine.
        api_key: Key of the local user; empty where all users have to sign in.

    Raises:
        Unavailable: REST does not answer, or makes no link.
    """
    if not api_key:
        return f"{rest_url}/"
    code = await asyncio.to_thread(_code, rest_url, api_key)
    return f"{rest_url}/#sign-in={code}"


def local_rest(connection: Connection) -> str:
    """Base URL of REST of the local standalone that the connection is of.

    Raises:
        NoConnection: it is of no local standalone, or of one without REST.
    """
    if not connection.standalone:
        raise NoConnection(
            "`bos console` is for a Bos that runs on this machine; elsewhere open the address of "
            "its REST gateway in a browser, and sign in there."
        )
    try:
        url = read_believed(Path(connection.standalone) / FILE).get("rest_url")
    except NotBelieved as reason:
        raise NoConnection(f"{connection.standalone} is passed over: {reason}.") from None
    if not url:
        raise NoConnection("REST is not offered, and with it no console; `make rest` builds it.")
    return str(url)


def _code(rest_url: str, api_key: str) -> str:
    place = urlsplit(rest_url)
    connection = http.client.HTTPConnection(
        place.hostname or "", place.port or 80, timeout=_TIMEOUT_S
    )
    try:
        headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        connection.request("POST", _LINK_PATH, body=b"{}", headers=headers)
        response = connection.getresponse()
        text = response.read(_MOST_BYTES)
        if response.status != http.client.OK:
            raise Unavailable(f"REST makes no link that signs in (HTTP {response.status}).")
        return str(json.loads(text)["code"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise Unavailable(f"REST makes no link that signs in ({type(error).__name__}).") from error
    finally:
        connection.close()
