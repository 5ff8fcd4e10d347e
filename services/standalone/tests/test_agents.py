import re
import tomllib
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest
from click.testing import CliRunner

from bos_agentkit import AgentServiceSettings
from bos_cli.main import main
from bos_errors import ConfigurationError
from bos_standalone.agents import (
    GROUP,
    agent_factory,
    by_name,
    configured_agents,
    installed_agents,
)
from bos_testkit.packages import offer_entry_points

FOLDERS = sorted(Path(__file__).parents[2].joinpath("agents").glob("*/pyproject.toml"))


def declared() -> dict[str, str]:
    """Entry points of the agents of this repository, by their pyproject.toml."""
    return {
        name: target
        for file in FOLDERS
        for name, target in tomllib.loads(file.read_text("utf-8"))["project"]["entry-points"][
            GROUP
        ].items()
    }


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a package that offers these agents, ahead of the installed ones."""

    def install(package: str, **agents: str) -> None:
        offer_entry_points(tmp_path, package, {GROUP: agents})
        monkeypatch.syspath_prepend(tmp_path)

    return install


def test_agents_of_the_repository_are_installed_in_order() -> None:
    assert len(FOLDERS) >= 3
    found = installed_agents()
    assert list(found) == sorted(found)
    assert declared().items() <= found.items(), "`make install` brings the metadata up to date"


@pytest.mark.parametrize("name", declared())
def test_every_entry_point_resolves_to_the_agent_of_its_name(name: str) -> None:
    factory = agent_factory(name, declared()[name])
    assert issubclass(factory.settings, AgentServiceSettings)
    settings = factory.settings_with(
        mcp_url="http://127.0.0.1:1/mcp",
        sandbox_target="127.0.0.1:1",
        documents_target="127.0.0.1:1",
        store_url="postgresql://127.0.0.1:1/bos",
        workspace_url="file:///nowhere",
        not_a_setting=1,
    )
    assert settings.server.host == "127.0.0.1"


def test_order_of_agents_is_not_that_of_installation(tmp_path: Path) -> None:
    offer_entry_points(tmp_path, "acme-a", {GROUP: {"zebra": "acme_z:s", "mail": "acme_m:s"}})
    offer_entry_points(tmp_path, "acme-b", {GROUP: {"web": "acme_w:s", "aardvark": "acme_a:s"}})
    found = [e for d in distributions(path=[str(tmp_path)]) for e in d.entry_points]
    found.sort(key=lambda each: each.value, reverse=True)
    assert list(by_name(found)) == ["aardvark", "mail", "web", "zebra"]


def test_a_package_that_offers_an_agent_adds_it(offer: Callable[..., None]) -> None:
    before = installed_agents()
    offer("acme-mail", post="acme_mail.service:serve")
    assert installed_agents() == {**before, "post": "acme_mail.service:serve"}


def test_error_for_a_duplicate_agent_name_names_both_packages(offer: Callable[..., None]) -> None:
    offer("acme-first", post="acme_first:serve")
    offer("acme-second", post="acme_second:serve")
    with pytest.raises(ConfigurationError, match=r"acme-first and acme-second both offer.*'post'"):
        installed_agents()


@pytest.mark.parametrize("name", ["Mail", "x" * 64, "all", "gateway"])
def test_invalid_agent_name_is_refused_and_its_package_named(
    offer: Callable[..., None], name: str
) -> None:
    offer("acme-mail", **{name: "acme_mail:serve"})
    with pytest.raises(ConfigurationError, match=r"acme-mail offers.*rename it"):
        installed_agents()


def test_one_package_may_be_several_agents_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {name: agent_factory(name, declared()[name]) for name in ("sql", "mcp")}
    assert list(configured_agents(installed)) == ["sql"]
    servers = '{"crm": {"url": "https://x.example/mcp"}, "notes": {"command": ["/bin/notes"]}}'
    monkeypatch.setenv("BOS_MCP_SERVERS", servers)
    found = configured_agents(installed)
    assert list(found) == ["sql", "crm", "notes"]
    assert [dict(each.own) for each in found.values()] == [{}, {"agent": "crm"}, {"agent": "notes"}]
    monkeypatch.setenv("BOS_MCP_SERVERS", servers.replace("crm", "sql"))
    with pytest.raises(ConfigurationError, match=r"'mcp' name an agent 'sql'.*no free name"):
        configured_agents(installed)


def test_error_without_any_agent_says_how_to_install_them() -> None:
    with pytest.raises(ConfigurationError, match=r"No agent is installed.*make install"):
        by_name([])


@pytest.mark.parametrize(
    "target",
    [
        "bos_nowhere.service:serve",
        "bos_sql.service:absent",
        "bos_planner.service:serve",
        "broken_package.service:serve",
        "",
    ],
)
def test_unloadable_agent_is_named_with_package_and_fix(
    offer: Callable[..., None], tmp_path: Path, target: str
) -> None:
    (tmp_path / "broken_package").mkdir()
    (tmp_path / "broken_package/service.py").write_text("1 / 0\n")
    offer("acme-odd", odd=target)
    with pytest.raises(ConfigurationError) as refused:
        agent_factory("odd", target)
    assert "'odd'" in refused.value.message
    if "planner" not in target:  # that package is installed, and has no agent
        assert "acme-odd" in refused.value.message
        assert "Reinstall or uninstall" in refused.value.message


@pytest.mark.usefixtures("nothing_configured")
@pytest.mark.parametrize(
    ("service", "code", "said"),
    [
        ("all", 78, "'odd' cannot be loaded from 'acme_odd.service:serve' of the package acme-odd"),
        ("nowhere", 2, "gateway, .*odd, rag, sql"),
        ("computation", 78, "BOS_COMPUTATION_SANDBOX_TARGET"),
    ],
)
def test_broken_agent_fails_serve_all_and_no_other_command(
    offer: Callable[..., None], service: str, code: int, said: str
) -> None:
    offer("acme-odd", odd="acme_odd.service:serve")
    done = CliRunner().invoke(main, ["serve", service])
    assert done.exit_code == code
    assert re.search(said, done.output)
    assert "Traceback" not in done.output
