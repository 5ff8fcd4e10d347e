"""``bos account rm`` asks for the password of users who have one, and of no others."""

from typing import Any

import click
import pytest

from bos_cli.commands.account import _close
from bos_errors import BosError, FailedPrecondition, InvalidArgument


class Account:
    """Stands for identity, which refuses what the test says."""

    def __init__(self, *refusals: BosError) -> None:
        self.refusals = list(refusals)
        self.passwords: list[str] = []

    async def close_account(self, password: str) -> None:
        self.passwords.append(password)
        if self.refusals:
            raise self.refusals.pop(0)


REQUIRED = InvalidArgument("current_password: must be given.", reason="PASSWORD_REQUIRED")
NOT_FRESH = FailedPrecondition("Log in again.", reason="SIGN_IN_NOT_FRESH")


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def prompt(text: str, **_: Any) -> str:
        asked.append(text)
        return "typed"

    monkeypatch.setattr(click, "prompt", prompt)
    return asked


async def test_who_has_a_password_is_asked_for_it(prompts: list[str]) -> None:
    account: Any = Account(REQUIRED)
    await _close(account, "", ask=True)
    assert (account.passwords, prompts) == (["", "typed"], ["Password"])


async def test_who_has_none_is_not(prompts: list[str]) -> None:
    account: Any = Account()
    await _close(account, "", ask=True)
    assert (account.passwords, prompts) == ([""], [])


@pytest.mark.parametrize(("refusal", "ask"), [(REQUIRED, False), (NOT_FRESH, True)])
async def test_another_refusal_is_shown(refusal: BosError, ask: bool, prompts: list[str]) -> None:
    account: Any = Account(refusal)
    with pytest.raises(BosError) as raised:
        await _close(account, "", ask=ask)
    assert raised.value is refusal
    assert (account.passwords, prompts) == ([""], [])
