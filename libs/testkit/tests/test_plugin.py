"""What the pytest plugin sets for all tests."""

import hypothesis


def test_property_tests_have_no_deadline() -> None:
    now = hypothesis.settings()
    assert now.deadline is None
    assert list(now.suppress_health_check) == [hypothesis.HealthCheck.too_slow]
