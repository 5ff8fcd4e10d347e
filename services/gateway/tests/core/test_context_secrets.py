"""Credentials in a request's context are found by their declared keys, and taken out."""

import os
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from bos.gateway.v1 import AgentRequest
from bos_agentkit import agent_card
from bos_errors import InvalidArgument
from bos_gateway.admission import normalise as contexts
from bos_gateway.admission.context_secrets import (
    DeclaredKeys,
    Taken,
    named_files,
    removal_message,
    take_secrets,
)
from bos_gateway.admission.token_files import MAX_TOKEN_BYTES, in_token_files
from bos_gateway.core.shown.masking import Masker

KEYS = DeclaredKeys(
    [
        agent_card("shop", "Shop.", secret_context_keys=["shop_token"]),
        agent_card("api", "Api.", secret_context_keys=["api_headers", "Shop-Token"]),
    ],
    ["other_password"],
)


def struct(**fields: Any) -> Struct:
    made = Struct()
    made.update(fields)
    return made


def taken_out(**fields: Any) -> tuple[Taken, dict[str, Any]]:
    context = struct(**fields)
    taken = take_secrets(context, KEYS)
    return taken, MessageToDict(context)


@pytest.mark.requirement("A-05")
def test_what_merely_sounds_like_a_credential_stays() -> None:
    fields = {
        "token_budget": 5.0,
        "max_tokens": 7.0,
        "secretary": "Ms. Key",
        "passwords_expire": True,
        "authorization_form": {"tokenizer": "bpe"},
    }
    taken, left = taken_out(**fields)
    assert left == fields
    assert (taken.secrets, taken.withheld, taken.paths) == ({}, {}, [])


@pytest.mark.security
@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (12345678, "12345678"),
        (-7.5, "-7.5"),
        ([12345678, "x"], '[12345678, "x"]'),
        ({"api_key": 12345678}, '{"api_key": 12345678}'),
        (10**15, "1000000000000000"),
    ],
)
def test_numeric_credential_is_the_number_that_was_sent(sent: Any, text: str) -> None:
    taken, _ = taken_out(shop_token=sent)
    assert set(taken.secrets.values()) == {text}
    if "12345678" in text:
        assert "12345678" not in Masker(taken.secrets).text("it was 12345678, says the service")


@pytest.mark.security
@pytest.mark.requirement("A-05")
def test_declared_keys_are_taken_out_at_any_depth() -> None:
    taken, left = taken_out(
        user={"shop_token": "s3cret-1", "name": "Ada"},
        calls=[{"deep": [[{"api_headers": {"Authorization": "Bearer x"}}]]}, "text"],
        other_password="s3cret-2",
        shop_token=None,
    )
    assert left == {"user": {"name": "Ada"}, "calls": [{"deep": [[{}]]}, "text"]}
    assert taken.secrets == {
        "shop_token": "s3cret-1",
        "Shop-Token": "s3cret-1",
        "api_headers": '{"Authorization": "Bearer x"}',
    }
    assert taken.withheld == {"context.other_password": "s3cret-2"}
    assert taken.paths == [
        "context.calls[0].deep[0][0].api_headers",
        "context.other_password",
        "context.shop_token",
        "context.user.shop_token",
    ]


@pytest.mark.security
@pytest.mark.parametrize("key", ["shop_token", "SHOP_TOKEN", "Shop-Token", "shop-token"])
def test_case_and_hyphens_hide_no_credential(key: str) -> None:
    taken, left = taken_out(**{key: "s3cret"})
    assert left == {}
    assert set(taken.secrets) == {"shop_token", "Shop-Token"}


def test_two_values_of_a_key_are_refused_with_both_paths() -> None:
    with pytest.raises(InvalidArgument) as caught:
        taken_out(shop_token="one-secret", a=[{"shop_token": "two-secret"}])
    (violation,) = caught.value.violations
    assert violation.field == "request.context.shop_token"
    assert "request.context.a[0].shop_token" in violation.description
    assert "send one of them" in violation.description
    assert "-secret" not in str(caught.value) + violation.description


def test_one_value_at_two_depths_is_one_credential() -> None:
    taken, left = taken_out(shop_token="s3cret", a={"shop_token": "s3cret"})
    assert left == {"a": {}}
    assert taken.secrets["shop_token"] == "s3cret"
    assert len(taken.paths) == 2


def test_requests_that_differ_in_credentials_alone_are_equal() -> None:
    def digest(**fields: Any) -> bytes:
        return contexts.digest(AgentRequest(question="Q?", context=struct(**fields)), KEYS)

    assert digest(a={"shop_token": "1"}) == digest(a={"shop_token": "2"}) == digest(a={})
    assert digest(a={"token_budget": "1"}) != digest(a={"token_budget": "2"})


def test_removed_credentials_are_named_without_values() -> None:
    assert removal_message(["context.a", "context.b.c"]) == (
        "Credentials were taken out of the request: context.a, context.b.c."
    )
    assert removal_message(["context.a"] * 101).endswith("context.a and 1 more.")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is allowed, with a token, and another token beside it."""
    allowed = tmp_path / "tokens"
    (allowed / "shop").mkdir(parents=True)
    (allowed / "shop/token").write_text(" t0ken-of-shop\n", encoding="utf-8")
    (tmp_path / "outside").write_text("t0ken-of-others", encoding="utf-8")
    return allowed


async def read(folder: Path | None, name: str) -> str:
    context = struct(a={"API-Token-File": name})
    named = named_files(context, KEYS)
    assert named == {"context.a.API-Token-File": name}
    (content,) = (await in_token_files(folder, named)).values()
    return content


async def test_a_file_in_the_folder_is_read_by_relative_and_whole_name(folder: Path) -> None:
    assert await read(folder, "shop/token") == "t0ken-of-shop"
    assert await read(folder, str(folder / "shop/token")) == "t0ken-of-shop"
    (folder / "link").symlink_to(folder / "shop/token")
    assert await read(folder, "link") == "t0ken-of-shop"
    (folder / "full").write_text("x" * MAX_TOKEN_BYTES, encoding="utf-8")
    assert await read(folder, "full") == "x" * MAX_TOKEN_BYTES


@pytest.mark.security
async def test_no_other_file_is_read_or_revealed(folder: Path) -> None:
    (folder / "out").symlink_to(folder.parent / "outside")
    (folder / "way").symlink_to(folder.parent)
    (folder / "round").symlink_to(folder / "round")
    os.mkfifo(folder / "pipe")
    (folder / "large").write_text("x" * (MAX_TOKEN_BYTES + 1), encoding="utf-8")
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "empty").write_bytes(b"")
    names = ["../outside", str(folder.parent / "outside"), "out", "way/outside", "round", "pipe"]
    names += ["large", "binary", "empty", "shop", ".", "", "missing", "a\0b", "x" * 5000]
    names += ["/etc/passwd", "/proc/self/environ", "/dev/zero", "shop/../../outside", "~/x"]
    errors = set()
    for name in names:
        with pytest.raises(InvalidArgument) as caught:
            await read(folder, name)
        errors.add(str(caught.value))
        assert caught.value.violations[0].field == "request.context.a.API-Token-File"
    assert len(errors) == 1, "an error says which files there are"


@pytest.mark.security
async def test_without_a_folder_no_file_is_read(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="no folder is allowed"):
        await read(None, str(folder / "shop/token"))


async def test_number_of_token_files_is_bounded(folder: Path) -> None:
    assert await in_token_files(folder, {}) == {}
    names = {f"context.{number}": "shop/token" for number in range(17)}
    with pytest.raises(InvalidArgument, match="more than 16"):
        await in_token_files(folder, names)
    del names["context.0"]
    assert set((await in_token_files(folder, names)).values()) == {"t0ken-of-shop"}


def test_what_was_in_a_file_takes_the_place_of_its_name() -> None:
    keys = DeclaredKeys([agent_card("api", "Api.", secret_context_keys=["api_token_file"])])
    context = struct(a={"api_token_file": "shop/token"})
    taken = take_secrets(context, keys, {"context.a.api_token_file": "t0ken-of-shop"})
    assert taken.secrets == {"api_token_file": "t0ken-of-shop"}
    assert MessageToDict(context) == {"a": {}}
