"""Which addresses are called in plain text, and which files TLS takes."""

import json
from pathlib import Path

import pytest

from bos_client import client
from bos_client.transport import Transport
from bos_errors import InvalidArgument
from bos_testkit.certificates import Authority


def test_plain_text_reaches_this_machine_alone() -> None:
    here = {
        "127.0.0.1:1": "127.0.0.1:1",
        "[::1]:1": "[::1]:1",
        "dns:///localhost:1": "dns:///localhost:1",
        "http://127.0.0.1:1/": "127.0.0.1:1",
        "unix:/run/bos.sock": "unix:/run/bos.sock",
        "ipv4:127.0.0.1:1,127.0.0.2:1": "ipv4:127.0.0.1:1,127.0.0.2:1",
        "ipv6:[::1]:1": "ipv6:[::1]:1",
    }
    transport = Transport(insecure=False)
    assert {target: transport.reach(target) for target in here} == {
        target: (dialled, None) for target, dialled in here.items()
    }
    beyond = ("bos.example:8080", "192.0.2.7:8080", "0.0.0.0:1", "dns:///bos.example:1")
    for target in (*beyond, "http://[::]:1", "ipv4:127.0.0.1:1,192.0.2.7:1", "ipv4:"):
        with pytest.raises(InvalidArgument, match="--insecure"):
            transport.reach(target)


def test_plain_text_beyond_this_machine_may_be_allowed(tmp_path: Path) -> None:
    assert Transport(insecure=True).reach("bos.example:1") == ("bos.example:1", None)
    tls = Authority(tmp_path).issue("gateway")
    for target in ("grpcs://127.0.0.1:1", "https://bos.example:1"):
        assert Transport(str(tls.ca_file), insecure=True).reach(target)[1] is not None
    assert Transport(str(tls.ca_file), insecure=True).reach("bos.example:1")[1] is not None


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("gateway")
    missing = str(tmp_path / "missing")
    for transport, named in (
        (Transport(ca_file=missing), "--ca-file"),
        (Transport(ca_file=str(tls.key_file)), "--ca-file"),
        (Transport(str(tls.ca_file), cert_file=str(tls.cert_file)), "--key-file"),
        (Transport(str(tls.ca_file), str(tls.cert_file), missing), "--key-file"),
    ):
        with pytest.raises(InvalidArgument, match=named):
            transport.reach("grpcs://127.0.0.1:1")


def _repeated() -> set[str]:
    config = json.loads(str(dict(client._OPTIONS)["grpc.service_config"]))
    (policy,) = config["methodConfig"]
    return {name["method"] for name in policy["name"]}


def test_calls_that_may_be_made_twice_are_repeated() -> None:
    assert _repeated() >= {"GetRun", "CancelRun", "RespondApproval", "CancelUserRun"}


def test_questions_and_streams_are_not_repeated() -> None:
    assert _repeated().isdisjoint({"Ask", "AskStream", "WatchRun", "DownloadFile"})
