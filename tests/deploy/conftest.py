import shutil
import sys
from pathlib import Path

import pytest
from chart_rendering import PROFILES, ROOT, Chart, Rendered, tools
from compose_files import Project

sys.path.append(str(Path(__file__).parents[2] / "deploy"))
from descriptors.descriptor import Services
from from_descriptors import blocks


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


@pytest.fixture
def described_tree(tmp_path: Path) -> Path:
    """A copy of the descriptors, and of the files that are made from them."""
    services = Services(ROOT)
    for name in blocks(services):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for service in services.all:
        (tmp_path / service.folder).mkdir(parents=True, exist_ok=True)
        for name in ("pyproject.toml", "bos.toml"):
            if (ROOT / service.folder / name).exists():
                shutil.copy(ROOT / service.folder / name, tmp_path / service.folder)
    return tmp_path
