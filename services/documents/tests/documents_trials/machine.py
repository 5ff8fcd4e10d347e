"""What a test needs of the machine: missing, it fails in CI and is left out elsewhere."""

import os

import pytest


def needs(there: bool, otherwise: str) -> None:
    """Go on if what the test needs is there.

    CI has everything, so that there the test fails; elsewhere it is skipped. Both say why.

    Args:
        there: Whether the machine has it.
        otherwise: What is missing, and how one gets it.
    """
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(otherwise)
    pytest.skip(otherwise)
