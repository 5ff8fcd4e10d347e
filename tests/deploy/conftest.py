from __future__ import annotations

import pytest
from chart_rendering import PROFILES, Chart, Rendered, tools
from compose_files import Project


@pytest.fixture(scope="session")
def chart() -> Chart:
    """The chart, rendered by the pinned helm."""
    return Chart(tools("helm") / "helm")


@pytest.fixture(scope="session")
def rendered(chart: Chart) -> dict[str, Rendered]:
    """Every profile as it is."""
    return {profile: chart.render(profile) for profile in PROFILES}


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest, rendered: dict[str, Rendered]) -> Rendered:
    """One profile after another."""
    return rendered[request.param]


@pytest.fixture(scope="session")
def made_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """docker-compose.yml with secrets and settings; not to be changed."""
    made = Project(tmp_path_factory.mktemp("compose"))
    made.make_secrets()
    return made
