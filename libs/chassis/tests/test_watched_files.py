"""Keys in files that change while a service runs."""

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bos_chassis.auth.callers import (
    RUN_TOKEN_KEY,
    Authenticator,
    RunTokenSigner,
    RunTokenVerifier,
    authenticator_from,
    generate_keypair,
)
from bos_chassis.auth.proxy_tokens import PROXY_TOKEN_KEY, proxy_tokens_from
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.auth.run_token_keys import signing_keys_file
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.credentials.tls import certificate_files
from bos_chassis.credentials.watched_files import MAX_BYTES, secret_file
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError, Unauthenticated
from bos_testkit.address_tokens import AddressTokens
from bos_testkit.certificates import Authority
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.security

OLD, NEW = "the-old-key-of-ada", "the-new-key-of-ada"
AT_ONCE = 1e-9


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"{OLD}\n")
    return path


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry.for_tests()


def write(path: Path, content: str | bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def settings(file: Path, **more: Any) -> AuthSettings:
    return AuthSettings(static_keys_file=file, files_refresh_s=AT_ONCE, **more)


async def accepted(auth: Authenticator, *credentials: dict[str, str]) -> list[bool]:
    """Which of the credentials are accepted now."""
    found = []
    for metadata in credentials:
        try:
            found.append(await auth.authenticate(metadata) is not None)
        except Unauthenticated:
            found.append(False)
    return found


async def taken(auth: Authenticator, *keys: str) -> list[bool]:
    return await accepted(auth, *({"authorization": f"Bearer {key}"} for key in keys))


async def test_old_and_new_key_overlap_while_both_are_listed(
    file: Path, telemetry: Telemetry
) -> None:
    auth = authenticator_from(settings(file), "sql", telemetry=telemetry)
    assert await taken(auth, OLD, NEW) == [True, False]
    write(file, f"{OLD}\n\n  {NEW}\r\n")
    assert await taken(auth, OLD, NEW) == [True, True]
    write(file, NEW)
    assert await taken(auth, OLD, NEW, "") == [False, True, False]
    logged = [each["event"] for each in telemetry.logs]
    assert logged == ["secret replaced"] * 2
    assert OLD not in str(telemetry.logs)
    assert NEW not in str(telemetry.logs)


@pytest.mark.parametrize(
    "content",
    [
        *(" \n", None, f"{NEW}\nshort", "two words of sixteen", "ключ" * 8),
        *(b"\xff" * 20, f"{NEW}\0", NEW + "\n" * MAX_BYTES),
        "\n".join(f"key-number-{number:08}" for number in range(33)),
    ],
)
async def test_damaged_file_is_logged_and_ignored(
    file: Path, telemetry: Telemetry, content: str | bytes | None
) -> None:
    auth = authenticator_from(settings(file), "sql", telemetry=telemetry)
    write(file, content)
    assert await taken(auth, OLD, NEW) == [True, False]
    assert await taken(auth, OLD, NEW) == [True, False]
    assert [each["event"] for each in telemetry.logs] == ["secret not replaced"]
    assert NEW not in str(telemetry.logs)
    assert unusable(telemetry) == 1
    write(file, NEW)
    assert await taken(auth, OLD, NEW) == [False, True]
    assert unusable(telemetry) == 0


def unusable(telemetry: Telemetry, variable: str = "BOS_AUTH_STATIC_KEYS_FILE") -> float | None:
    labels = {"service": "test", "variable": variable}
    return telemetry.registry.get_sample_value("bos_secret_file_unusable", labels)


async def test_every_way_to_authenticate_takes_keys_of_the_file(
    file: Path, telemetry: Telemetry
) -> None:
    own = "the-key-of-a-variable"
    given = settings(file, static_key=own)
    async with (
        open_authenticator(given, "memory", telemetry) as public,
        open_authenticator(given, None, telemetry) as without_run_tokens,
        open_run_tokens(given, "sql", telemetry) as of_steps,
    ):
        for auth in (public, without_run_tokens, of_steps):
            assert await taken(auth, own, OLD, NEW) == [True, True, False]


def test_a_file_that_is_not_usable_at_the_start_is_named(file: Path, telemetry: Telemetry) -> None:
    write(file, "short")
    with pytest.raises(ConfigurationError, match="BOS_AUTH_STATIC_KEYS_FILE"):
        authenticator_from(settings(file), "sql", telemetry=telemetry)


def test_proxy_keys_overlap_and_what_old_one_signed_is_forgotten(
    file: Path, telemetry: Telemetry
) -> None:
    old, new = AddressTokens(), AddressTokens()
    write(file, old.public_key)
    given = AuthSettings(proxy_public_keys_file=file, files_refresh_s=AT_ONCE)
    verifier = proxy_tokens_from(given, telemetry)
    of_old, of_new = ({PROXY_TOKEN_KEY: each.token("203.0.113.7")} for each in (old, new))

    def believed() -> list[bool]:
        return [verifier.verify(each) is not None for each in (of_old, of_new)]

    assert believed() == [True, False]
    write(file, old.public_key + new.public_key)
    assert believed() == [True, True]
    write(file, "-----BEGIN PUBLIC KEY-----\nhalf of it")
    assert believed() == [True, True]
    write(file, new.public_key)
    assert believed() == [False, True]  # also a token that was good a moment ago


def test_between_two_looks_the_file_is_left_alone(file: Path) -> None:
    watched = secret_file(file, "A_FILE", str, refresh_s=3600)
    write(file, NEW)
    assert watched.current() == OLD
    assert watched.look() == NEW
    assert watched.current() == NEW


async def test_the_end_of_a_certificate_is_a_metric(tmp_path: Path, telemetry: Telemetry) -> None:
    authority = Authority(tmp_path)
    files = certificate_files(authority.issue("test", expired=True), telemetry)

    def ends_in_s() -> float:
        assert files.current()
        name, labels = "bos_certificate_not_after_timestamp_seconds", {"service": "test"}
        return (telemetry.registry.get_sample_value(name, labels) or 0.0) - time.time()

    assert ends_in_s() < 0
    authority.issue("test")
    await eventually(lambda: 0 < ends_in_s() < 25 * 3600)


VARIABLE = "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS_FILE"
(OLD_KEY, OLD_PUBLIC), (NEW_KEY, NEW_PUBLIC) = generate_keypair(), generate_keypair()
OF_ANOTHER_KIND = (
    ec.generate_private_key(ec.SECP256R1())
    .public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
)


def token(private: str) -> str:
    return RunTokenSigner(private).mint("ada", "r", "r/0/a", ["sql"], 36000)


async def tokens_taken(auth: Authenticator, *tokens: str) -> list[bool]:
    return await accepted(auth, *({RUN_TOKEN_KEY: token} for token in tokens))


def token_settings(file: Path) -> AuthSettings:
    return AuthSettings.load(
        static_key=None, run_token_public_keys_file=file, files_refresh_s=AT_ONCE
    )


async def test_tokens_are_accepted_while_their_key_is_listed(
    tmp_path: Path, telemetry: Telemetry
) -> None:
    file = tmp_path / "public.pem"
    write(file, OLD_PUBLIC)
    given, of_old, of_new = token_settings(file), token(OLD_KEY), token(NEW_KEY)
    assert given.configured
    async with AsyncExitStack() as stack:
        verifiers = [
            authenticator_from(given, "sql", telemetry=telemetry),
            await stack.enter_async_context(open_run_tokens(given, "sql", telemetry)),
            await stack.enter_async_context(open_authenticator(given, "sql", telemetry, "step")),
        ]
        for verifier in verifiers:
            write(file, OLD_PUBLIC)
            assert await tokens_taken(verifier, of_old, of_new) == [True, False]
            write(file, NEW_PUBLIC + OLD_PUBLIC)
            assert await tokens_taken(verifier, of_old, of_new) == [True, True]
            write(file, NEW_PUBLIC)
            assert await tokens_taken(verifier, of_old, of_new) == [False, True], (
                "also one known to be good"
            )


@pytest.mark.parametrize(
    "content", [None, "nonsense", OF_ANOTHER_KIND, NEW_PUBLIC + OLD_PUBLIC[:60]]
)
async def test_damaged_public_key_file_is_logged_and_ignored(
    tmp_path: Path, telemetry: Telemetry, content: str | bytes | None
) -> None:
    file = tmp_path / "public.pem"
    write(file, OLD_PUBLIC)
    verifier = authenticator_from(token_settings(file), "sql", telemetry=telemetry)
    write(file, content)
    assert await tokens_taken(verifier, token(OLD_KEY), token(NEW_KEY)) == [True, False]
    assert [each["event"] for each in telemetry.logs] == ["secret not replaced"]
    assert unusable(telemetry, VARIABLE) == 1


async def test_keys_of_the_variable_count_beside_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "public.pem"
    write(file, NEW_PUBLIC)
    given = token_settings(file).model_copy(update={"run_token_public_keys": OLD_PUBLIC})
    verifier = authenticator_from(given, "sql")
    assert await tokens_taken(verifier, token(OLD_KEY), token(NEW_KEY)) == [True, True]


def test_first_key_of_file_signs_and_those_of_all_are_known(
    tmp_path: Path, telemetry: Telemetry
) -> None:
    file = tmp_path / "private.pem"
    write(file, OLD_KEY)
    watched = signing_keys_file(file, "PRIVATE_FILE", telemetry, AT_ONCE)
    signer = RunTokenSigner(watched)
    own = RunTokenVerifier([signer.public_keys], None)
    old, new = RunTokenVerifier([OLD_PUBLIC], "sql"), RunTokenVerifier([NEW_PUBLIC], "sql")

    def mint() -> str:
        return signer.mint("ada", "r", "r/0/a", ["sql"], 36000)

    first = mint()
    assert old.verify(first).user_id == own.verify(first).user_id == "ada"
    write(file, NEW_KEY + OLD_KEY)
    second = mint()
    assert new.verify(second).user_id == "ada"
    assert own.verify(first).user_id == own.verify(second).user_id == "ada"
    write(file, NEW_KEY)
    assert own.verify(second).user_id == "ada"
    with pytest.raises(Unauthenticated):
        own.verify(first)
    assert "PRIVATE KEY" not in str(telemetry.logs)


@pytest.mark.parametrize(
    "content",
    [None, OLD_PUBLIC, NEW_KEY + "-----BEGIN PRIVATE KEY-----\nhal"],
    ids=["gone", "public", "half a second one"],
)
def test_damaged_private_key_file_is_logged_and_ignored(
    tmp_path: Path, telemetry: Telemetry, content: str | None
) -> None:
    file = tmp_path / "private.pem"
    write(file, OLD_KEY)
    signer = RunTokenSigner(signing_keys_file(file, "PRIVATE_FILE", telemetry, AT_ONCE))
    write(file, content)
    minted = signer.mint("ada", "r", "r/0/a", ["sql"], 36000)
    assert RunTokenVerifier([OLD_PUBLIC], "sql").verify(minted).user_id == "ada"
    assert [each["event"] for each in telemetry.logs] == ["secret not replaced"]
    assert unusable(telemetry, "PRIVATE_FILE") == 1


def test_files_that_are_not_usable_at_the_start_are_named(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    write(file, "nonsense")
    with pytest.raises(ConfigurationError, match=VARIABLE):
        authenticator_from(token_settings(file), "sql")
    with pytest.raises(ConfigurationError, match="PRIVATE_FILE"):
        signing_keys_file(file, "PRIVATE_FILE")
