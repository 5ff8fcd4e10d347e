"""Each service alone in an empty environment: it starts, and carries nothing without use."""

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from collections.abc import Callable, Iterator
from functools import cache

from alone import ROOT, SERVICES, Environment, Workspace, faults

pytestmark = pytest.mark.timeout(1200)  # without the cache, packages are fetched first

OPERATOR = "bos_gateway.operator.commands"
IMPORT_ALL = f"""
import importlib, pkgutil, sys
for package in pkgutil.iter_modules():
    if not package.name.startswith("bos_"):
        continue
    importlib.import_module(package.name)
    for module in pkgutil.walk_packages([f"{{sys.argv[1]}}/{{package.name}}"], package.name + "."):
        if not module.name.startswith("{OPERATOR}"):
            importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Beside the cache of packages, so that files can be linked."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="alone-", dir=ROOT / ".cache") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def workspace(folder: Path) -> Workspace:
    return Workspace(folder / "wheels")


@pytest.fixture(scope="module")
def installed(workspace: Workspace, folder: Path) -> Callable[[str], Environment]:
    """A service alone in an environment, installed once."""
    return cache(lambda service: workspace.install(f"bos-{service}", folder / service))


@pytest.mark.parametrize("service", SERVICES)
def test_service_starts_alone_and_carries_nothing_without_use(
    service: str, installed: Callable[[str], Environment]
) -> None:
    environment = installed(service)
    packages = environment.packages()
    assert f"bos-{service}" in packages
    assert faults(service, packages) == []
    assert environment.programs("postgres", "initdb", "pg_ctl") == []
    imported = environment.python("-c", IMPORT_ALL, str(environment.site))
    assert imported.returncode == 0, imported.stderr
    ended = environment.python("-m", f"bos_{service}", BOS_SERVER_PORT="many")
    assert ended.returncode == 78, ended.stderr
    assert "BOS_SERVER_PORT" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_commands_of_operators_say_what_to_install(
    workspace: Workspace, installed: Callable[[str], Environment]
) -> None:
    """Comes behind the test of the gateway alone, to whose environment it adds."""
    gateway = installed("gateway")
    ended = gateway.python("-c", f"import {OPERATOR}.doctor")
    assert ended.stderr.strip().rpartition("\n")[2] == (
        "ModuleNotFoundError: install bos-gateway[operator] for the commands of operators"
    )
    # Users with the command line alone see it there.
    workspace.add("bos-cli", gateway)
    ended = gateway.python(str(gateway.folder / "bin/bos"), "doctor")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "install bos-gateway[operator]" in ended.stderr
    workspace.add("bos-gateway[operator]", gateway)
    ended = gateway.python(str(gateway.folder / "bin/bos"), "doctor", "--help")
    assert ended.returncode == 0, ended.stderr
    assert "Usage" in ended.stdout


def test_embedded_server_says_what_to_install(workspace: Workspace, folder: Path) -> None:
    start = "from bos_postgres._installation import find_installation; find_installation()"
    environment = workspace.install("bos-postgres", folder / "postgres")
    ended = environment.python("-c", start)
    assert "Install bos-postgres[embedded], or set the URL of another" in ended.stderr
    workspace.add("bos-postgres[embedded]", environment)
    ended = environment.python("-c", start)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("service", "package", "what"),
    [
        ("sql", "pytest", "a test tool"),
        ("composer", "sqlglot", "an SQL parser it does not use"),
        ("sql", "sqlglot", ""),
        ("sandbox", "aiohttp", "an HTTP client it does not use"),
        ("gateway", "aiohttp", ""),
    ],
)
def test_package_without_use_is_named(service: str, package: str, what: str) -> None:
    expected = [f"{service} carries {package}, {what}"] if what else []
    assert faults(service, ["grpcio", package]) == expected
