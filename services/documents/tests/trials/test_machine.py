"""Tests that need something of the machine."""

import pytest
from documents_trials.machine import needs


def test_what_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    needs(True, "install it")


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_what_is_missing_fails_in_ci_and_is_left_out_elsewhere(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="install it"):
        needs(False, "install it")
