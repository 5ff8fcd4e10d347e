"""Which calls gRPC repeats for the client by itself."""

import json

from bos_client import client


def _repeated() -> set[str]:
    config = json.loads(str(dict(client._OPTIONS)["grpc.service_config"]))
    (policy,) = config["methodConfig"]
    return {name["method"] for name in policy["name"]}


def test_calls_that_may_be_made_twice_are_repeated() -> None:
    assert _repeated() >= {"GetRun", "CancelRun", "RespondApproval", "CancelUserRun"}


def test_questions_and_streams_are_not_repeated() -> None:
    assert _repeated().isdisjoint({"Ask", "AskStream", "WatchRun", "DownloadFile"})
