"""Keys in files that change while a service runs."""

import time
from pathlib import Path
from typing import Any

import pytest

from bos_chassis.auth.callers import Authenticator, authenticator_from
from bos_chassis.auth.proxy_tokens import PROXY_TOKEN_KEY, proxy_tokens_from
from bos_chassis.auth.run_token_checks import open_run_tokens
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


async def taken(auth: Authenticator, *keys: str) -> list[bool]:
    """Which of the keys are accepted now."""
    found = []
    for key in keys:
        try:
            found.append(await auth.authenticate({"authorization": f"Bearer {key}"}) is not None)
        except Unauthenticated:
            found.append(False)
    return found


async def test_an_old_key_is_refused_a_new_one_taken_and_both_while_they_overlap(
    file: Path, telemetry: Telemetry
) -> None:
    auth = authenticator_from(settings(file), "sql", telemetry=telemetry)
    assert auth is not None
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
        *("", " \n", None, "too-short", f"{NEW}\nshort", "two words of sixteen", "ключ" * 8),
        *(b"\xff" * 20, f"{NEW}\0", NEW + "\n" * MAX_BYTES),
        "\n".join(f"key-number-{number:08}" for number in range(33)),
    ],
)
async def test_damaged_file_is_logged_and_ignored(
    file: Path, telemetry: Telemetry, content: str | bytes | None
) -> None:
    auth = authenticator_from(settings(file), "sql", telemetry=telemetry)
    assert auth is not None
    write(file, content)
    assert await taken(auth, OLD, NEW) == [True, False]
    assert await taken(auth, OLD, NEW) == [True, False]
    assert [each["event"] for each in telemetry.logs] == ["secret not replaced"]
    assert NEW not in str(telemetry.logs)
    assert unusable(telemetry) == 1
    write(file, NEW)
    assert await taken(auth, OLD, NEW) == [False, True]
    assert unusable(telemetry) == 0


def unusable(telemetry: Telemetry) -> float | None:
    labels = {"service": "test", "variable": "BOS_AUTH_STATIC_KEYS_FILE"}
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
            assert auth is not None
            assert await taken(auth, own, OLD, NEW) == [True, True, False]


@pytest.mark.parametrize("content", [None, "", "short"])
def test_a_file_that_is_not_usable_at_the_start_is_named(
    file: Path, content: str | None, telemetry: Telemetry
) -> None:
    write(file, content)
    with pytest.raises(ConfigurationError, match="BOS_AUTH_STATIC_KEYS_FILE"):
        authenticator_from(settings(file), "sql", telemetry=telemetry)


def test_proxy_keys_overlap_and_what_an_old_one_signed_is_forgotten(
    file: Path, telemetry: Telemetry
) -> None:
    old, new = AddressTokens(), AddressTokens()
    write(file, old.public_key)
    given = AuthSettings(proxy_public_keys_file=file, files_refresh_s=AT_ONCE)
    verifier = proxy_tokens_from(given, telemetry)
    assert verifier is not None
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
    assert files is not None

    def ends_in_s() -> float:
        assert files.current()
        name, labels = "bos_certificate_not_after_timestamp_seconds", {"service": "test"}
        return (telemetry.registry.get_sample_value(name, labels) or 0.0) - time.time()

    assert ends_in_s() < 0
    authority.issue("test")
    await eventually(lambda: 0 < ends_in_s() < 25 * 3600)
