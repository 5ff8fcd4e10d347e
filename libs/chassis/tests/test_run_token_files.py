"""Keys of run tokens in files that change while gateway and services run."""

from contextlib import AsyncExitStack
from pathlib import Path

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
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.auth.run_token_keys import signing_keys_file
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError, Unauthenticated

pytestmark = pytest.mark.security
AT_ONCE = 1e-9
VARIABLE = "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS_FILE"
(OLD, OLD_PUBLIC), (NEW, NEW_PUBLIC) = generate_keypair(), generate_keypair()
OF_ANOTHER_KIND = (
    ec.generate_private_key(ec.SECP256R1())
    .public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
)
DAMAGED = [None, "", " \n", "nonsense", OF_ANOTHER_KIND, b"\xff" * 50, NEW_PUBLIC + OLD_PUBLIC[:60]]


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry.for_tests()


def write(path: Path, content: str | bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def token(private: str) -> str:
    return RunTokenSigner(private).mint("ada", "r", "r/0/a", ["sql"], 36000)


async def taken(auth: Authenticator, *tokens: str) -> list[bool]:
    """Which of the tokens are accepted now."""
    found = []
    for each in tokens:
        try:
            found.append(await auth.authenticate({RUN_TOKEN_KEY: each}) is not None)
        except Unauthenticated:
            found.append(False)
    return found


def unusable(telemetry: Telemetry, variable: str = VARIABLE) -> float | None:
    labels = {"service": "test", "variable": variable}
    return telemetry.registry.get_sample_value("bos_secret_file_unusable", labels)


def settings(file: Path) -> AuthSettings:
    return AuthSettings.load(
        static_key=None, run_token_public_keys_file=file, files_refresh_s=AT_ONCE
    )


async def test_tokens_in_flight_are_good_as_long_as_their_key_is_listed(
    tmp_path: Path, telemetry: Telemetry
) -> None:
    file = tmp_path / "public.pem"
    write(file, OLD_PUBLIC)
    given, of_old, of_new = settings(file), token(OLD), token(NEW)
    assert given.configured
    async with AsyncExitStack() as stack:
        verifiers = [
            authenticator_from(given, "sql", telemetry=telemetry),
            await stack.enter_async_context(open_run_tokens(given, "sql", telemetry)),
            await stack.enter_async_context(open_authenticator(given, "sql", telemetry, "step")),
        ]
        for verifier in verifiers:
            assert verifier is not None
            write(file, OLD_PUBLIC)
            assert await taken(verifier, of_old, of_new) == [True, False]
            write(file, NEW_PUBLIC + OLD_PUBLIC)
            assert await taken(verifier, of_old, of_new) == [True, True]
            write(file, NEW_PUBLIC)
            assert await taken(verifier, of_old, of_new) == [False, True], (
                "also one known to be good"
            )


@pytest.mark.parametrize("content", DAMAGED)
async def test_damaged_public_key_file_is_logged_and_ignored(
    tmp_path: Path, telemetry: Telemetry, content: str | bytes | None
) -> None:
    file = tmp_path / "public.pem"
    write(file, OLD_PUBLIC)
    verifier = authenticator_from(settings(file), "sql", telemetry=telemetry)
    assert verifier is not None
    of_old, of_new = token(OLD), token(NEW)
    write(file, content)
    assert await taken(verifier, of_old, of_new) == [True, False]
    assert [each["event"] for each in telemetry.logs] == ["secret not replaced"]
    assert unusable(telemetry) == 1
    write(file, NEW_PUBLIC)
    assert await taken(verifier, of_old, of_new) == [False, True]
    assert unusable(telemetry) == 0


async def test_keys_of_the_variable_count_beside_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "public.pem"
    write(file, NEW_PUBLIC)
    given = settings(file).model_copy(update={"run_token_public_keys": OLD_PUBLIC})
    verifier = authenticator_from(given, "sql")
    assert verifier is not None
    assert await taken(verifier, token(OLD), token(NEW)) == [True, True]


def test_the_first_key_of_the_file_signs_and_those_of_all_are_known(
    tmp_path: Path, telemetry: Telemetry
) -> None:
    file = tmp_path / "private.pem"
    write(file, OLD)
    watched = signing_keys_file(file, "PRIVATE_FILE", telemetry, AT_ONCE)
    signer = RunTokenSigner(watched)
    own = RunTokenVerifier([signer.public_keys], None)
    old, new = RunTokenVerifier([OLD_PUBLIC], "sql"), RunTokenVerifier([NEW_PUBLIC], "sql")

    def mint() -> str:
        return signer.mint("ada", "r", "r/0/a", ["sql"], 36000)

    first = mint()
    assert old.verify(first).user_id == own.verify(first).user_id == "ada"
    write(file, NEW + OLD)
    second = mint()
    assert new.verify(second).user_id == "ada"
    assert own.verify(first).user_id == own.verify(second).user_id == "ada"
    write(file, NEW)
    assert own.verify(second).user_id == "ada"
    with pytest.raises(Unauthenticated):
        own.verify(first)
    assert "PRIVATE KEY" not in str(telemetry.logs)


@pytest.mark.parametrize(
    "content",
    [None, "", "nonsense", OLD_PUBLIC, NEW + "-----BEGIN PRIVATE KEY-----\nhal", NEW[:60]],
    ids=["gone", "empty", "nonsense", "public", "half a second one", "half"],
)
def test_damaged_private_key_file_is_logged_and_ignored(
    tmp_path: Path, telemetry: Telemetry, content: str | None
) -> None:
    file = tmp_path / "private.pem"
    write(file, OLD)
    signer = RunTokenSigner(signing_keys_file(file, "PRIVATE_FILE", telemetry, AT_ONCE))
    write(file, content)
    minted = signer.mint("ada", "r", "r/0/a", ["sql"], 36000)
    assert RunTokenVerifier([OLD_PUBLIC], "sql").verify(minted).user_id == "ada"
    assert [each["event"] for each in telemetry.logs] == ["secret not replaced"]
    assert unusable(telemetry, "PRIVATE_FILE") == 1
    write(file, NEW)
    minted = signer.mint("ada", "r", "r/0/a", ["sql"], 36000)
    assert RunTokenVerifier([NEW_PUBLIC], "sql").verify(minted).user_id == "ada"
    assert unusable(telemetry, "PRIVATE_FILE") == 0


@pytest.mark.parametrize("content", ["", "nonsense", None])
def test_files_that_are_not_usable_at_the_start_are_named(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "keys.pem"
    write(file, "")
    write(file, content)
    with pytest.raises(ConfigurationError, match=VARIABLE):
        authenticator_from(settings(file), "sql")
    with pytest.raises(ConfigurationError, match="PRIVATE_FILE"):
        signing_keys_file(file, "PRIVATE_FILE")
