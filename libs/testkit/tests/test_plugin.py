"""What the pytest plugin sets for all tests."""

from __future__ import annotations

import hypothesis


def test_property_tests_do_not_depend_on_the_speed_of_the_machine() -> None:
    now = hypothesis.settings()
    assert now.deadline is None
    assert list(now.suppress_health_check) == [hypothesis.HealthCheck.too_slow]
