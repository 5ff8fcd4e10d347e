"""The secret that identity has at a real OpenID provider, in a file that changes while it runs."""

from pathlib import Path

import pytest

from bos_errors import BosError, ConfigurationError

from .openid_harness import Builder, Harness

pytestmark = pytest.mark.e2e
SECRET = "a secret: of %the test+client"
VARIABLE = "BOS_IDENTITY_OPENID_CLIENT_SECRET_FILE"
NEVER, AT_ONCE = 36000.0, 1e-9


async def outcome(harness: Harness) -> str:
    """The signed-in user, or the reason of a refusal."""
    try:
        return (await harness.signed_in("ada")).user.username
    except BosError as error:
        return error.reason


def unusable(harness: Harness) -> float | None:
    labels = {"service": "identity", "variable": VARIABLE}
    return harness.telemetry.registry.get_sample_value("bos_secret_file_unusable", labels)


async def test_a_secret_that_was_replaced_is_used_at_once(build: Builder, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("the one before")
    harness = await build(client_id="bos-secret", client_secret_file=file, files_refresh_s=NEVER)
    assert await outcome(harness) == "OPENID_UNAVAILABLE"
    file.write_text(f"{SECRET}\n")
    assert await outcome(harness) == "ada", "within the sign-in that the provider refuses at first"
    assert SECRET not in str(harness.telemetry.logs)


async def test_invalid_file_keeps_the_secret_and_is_logged(build: Builder, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    harness = await build(client_id="bos-secret", client_secret_file=file, files_refresh_s=AT_ONCE)
    assert await outcome(harness) == "ada"
    for content in ("", "two\nlines", "\0" * 20, None):
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        assert await outcome(harness) == "ada", content
        assert unusable(harness) == 1, content
    assert "secret not replaced" in {each["event"] for each in harness.telemetry.logs}
    file.write_text("another")
    assert await outcome(harness) == "OPENID_UNAVAILABLE", "the one that was replaced is not used"
    assert unusable(harness) == 0


async def test_a_file_that_is_not_usable_at_the_start_is_named(
    build: Builder, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=VARIABLE):
        await build(client_id="bos-secret", client_secret_file=tmp_path / "missing")
