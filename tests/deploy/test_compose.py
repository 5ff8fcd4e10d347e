"""docker-compose.yml holds every service, confined, with settings that exist and no secret."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from compose_files import ROOT, Project, agents_on_request, compose_file

from bos_standalone.agents import SERVICES, installed_agents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DATA = compose_file()
CONTAINERS: Mapping[str, Any] = DATA["services"]
OF_OTHERS = {"postgres", "qdrant", "collector", "jaeger", "prometheus", "grafana"}
OURS = sorted(CONTAINERS.keys() - OF_OTHERS)
# Images that hold their program alone: nothing in them could ask it how it is.
NOTHING_TO_ASK_WITH = {"collector", "jaeger"}
DIGEST = re.compile(r"\$\{[A-Z]+_IMAGE:-[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}\}")
VARIABLE = re.compile(r"\b(?:BOS_[A-Z0-9_]*[A-Z0-9]|(?:AZURE_)?OPENAI_[A-Z_]+)\b")
# Of docker-compose.yml and the build themselves, not of a service.
OWN_VARIABLES = {"BOS_IMAGES", "BOS_VERSION", "BOS_REST_PORT", "BOS_GATEWAY_PORT"}


@pytest.fixture
def project(made_project: Project) -> Project:
    return made_project


def known_settings() -> set[str]:
    pages = ("docs/reference/configuration.md", "services/rest/README.md")
    text = "".join((ROOT / page).read_text("utf-8") for page in pages)
    return set(re.findall(r"`([A-Z][A-Z0-9_]+)`", text))


def settings_of(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((name, str(value)) for name, value in container.get("environment", {}).items())


def test_every_service_is_a_container_of_its_own() -> None:
    services = {name.replace("_", "-") for name in (*SERVICES, *installed_agents(), "rest", "demo")}
    assert set(OURS) == services
    images = [CONTAINERS[name]["image"] for name in OURS]
    assert images == [f"${{BOS_IMAGES:-bos}}/{name}:${{BOS_VERSION:-dev}}" for name in OURS]


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_container_is_confined_bounded_and_asked_how_it_is(name: str) -> None:
    container = CONTAINERS[name]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert not container.get("privileged")
    assert "cap_add" not in container
    assert container["mem_limit"]
    assert container["pids_limit"]
    assert container["restart"]
    assert container["profiles"]
    assert ("test" in container["healthcheck"]) is (name not in NOTHING_TO_ASK_WITH)
    assert container.get("user", "").partition(":")[0] not in ("root", "0")
    assert all(port.startswith("127.0.0.1:") for port in container.get("ports", ()))


@pytest.mark.parametrize("name", sorted(OF_OTHERS))
def test_image_of_others_is_pinned_by_digest_in_a_variable(name: str) -> None:
    image = CONTAINERS[name]["image"]
    assert DIGEST.fullmatch(image)
    variable, _, pinned = image[2:-1].partition(":-")
    assert f"{variable}={pinned}\n" in (ROOT / "deploy/images/pins.env").read_text("utf-8")


def test_base_of_our_images_is_the_pinned_one() -> None:
    given = CONTAINERS["gateway"]["build"]["args"]["PYTHON_IMAGE"]
    assert DIGEST.fullmatch(given)
    pinned = given[2:-1].partition(":-")[2]
    assert f"PYTHON_IMAGE={pinned}\n" in (ROOT / "deploy/images/pins.env").read_text("utf-8")
    for name in OURS:
        assert CONTAINERS[name]["build"]["args"]["PYTHON_IMAGE"] == given


@pytest.mark.parametrize("name", OURS)
def test_image_is_built_from_the_folder_of_its_service(name: str) -> None:
    arguments = CONTAINERS[name]["build"]["args"]
    folder = arguments.get("SERVICE", "rest")
    assert folder.rpartition("/")[2].replace("_", "-") == name
    assert (
        ROOT / "services" / folder / ("go.mod" if name == "rest" else "pyproject.toml")
    ).exists()


def test_variables_are_settings_that_exist(project: Project) -> None:
    known = known_settings()
    unknown = {
        (name, variable)
        for name in OURS
        for variable, _ in settings_of(CONTAINERS[name])
        if variable not in known
    }
    assert unknown == set()
    named = {
        (file.name, variable)
        for file in project.env.glob("*.env")
        for variable in VARIABLE.findall(re.sub(r"=.*", "", file.read_text("utf-8")))
    }
    assert {each for each in named if each[1] not in known} == set()
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    interpolated = set(re.findall(r"\$\{(BOS_[A-Z_]+)", text))
    assert interpolated <= OWN_VARIABLES


def test_no_secret_stands_in_the_file() -> None:
    words = re.compile(r"(PASSWORD|SECRET|TOKEN|KEY)S?$")
    for name, container in CONTAINERS.items():
        for variable, value in settings_of(container):
            assert not words.search(variable), f"{name}: {variable} belongs into a file"
            assert "password=" not in value
            assert not re.search(r"://[^/@]+:[^/@]+@", value), f"{name}: a password in {variable}"


@pytest.mark.parametrize("name", OURS)
def test_container_is_given_its_own_secrets_alone(name: str, project: Project) -> None:
    mounted = [each for each in CONTAINERS[name]["volumes"] if "/secrets/" in each]
    assert mounted == [f"./deploy/compose/secrets/{name}:/run/secrets/bos:ro"]
    for file in CONTAINERS[name]["env_file"]:
        assert Path(file).stem in (name, "telemetry", "model")
    there = {each.name for each in (project.secrets / name).iterdir()}
    wanted = {
        found
        for _, value in settings_of(CONTAINERS[name])
        for found in re.findall(r"/run/secrets/bos/([a-z.-]+)", value)
    }
    if name == "mcp-db":  # in the JSON of its env file
        wanted.add("database-password")
    assert there == wanted


def test_sandbox_has_no_network_that_leads_out_and_no_secret_but_its_certificate(
    project: Project,
) -> None:
    assert CONTAINERS["sandbox"]["networks"] == ["sandbox"]
    assert DATA["networks"]["sandbox"] == {"internal": True}
    there = {each.name for each in (project.secrets / "sandbox").iterdir()}
    assert there == {"ca.crt", "tls.crt", "tls.key", "run-tokens.pub"}
    assert "model" not in str(CONTAINERS["sandbox"]["env_file"])


def test_stores_are_out_of_reach_of_whoever_keeps_nothing_there() -> None:
    assert DATA["networks"]["data"] == {"internal": True}
    inside = {name for name in CONTAINERS if "data" in CONTAINERS[name]["networks"]}
    assert inside - {"postgres", "qdrant"} == {
        name for name in OURS if "@postgres" in str(CONTAINERS[name]["environment"])
    } | {"mcp-db"}


def test_waiting_is_for_containers_with_a_health_check_and_goes_in_no_circle() -> None:
    waits = {name: set(each.get("depends_on", ())) for name, each in CONTAINERS.items()}
    for name, needed in waits.items():
        for each in needed:
            assert CONTAINERS[name]["depends_on"][each]["condition"] == "service_healthy"
            assert "test" in CONTAINERS[each]["healthcheck"]
    while waits:
        free = {name for name, needed in waits.items() if not needed & waits.keys()}
        assert free, f"a circle among {sorted(waits)}"
        waits = {name: needed for name, needed in waits.items() if name not in free}


def test_gateway_is_told_of_every_agent(project: Project) -> None:
    text = (project.env / "gateway.env").read_text("utf-8")
    (targets,) = re.findall(r"^BOS_GATEWAY_AGENT_TARGETS=(.*)$", text, re.MULTILINE)
    named = dict(each.split("=", 1) for each in targets.split(","))
    assert named.keys() == installed_agents().keys() - agents_on_request()
    assert all(named[name] == f"dns:///{name.replace('_', '-')}:8080" for name in named)


def test_sample_database_is_all_its_tables(project: Project) -> None:
    text = (project.env / "mcp-db.env").read_text("utf-8")
    (databases,) = re.findall(r"^BOS_MCP_DB_DATABASES='(.*)'$", text, re.MULTILINE)
    schema = (ROOT / "services/demo/src/bos_demo/schema.sql").read_text("utf-8")
    tables = re.findall(r"^CREATE TABLE (\w+)", schema, re.MULTILINE)
    assert json.loads(databases)["company"]["allowed_tables"] == sorted(tables)


def test_prometheus_collects_from_every_service() -> None:
    groups = yaml.safe_load((ROOT / "deploy/compose/targets/bos.yaml").read_text("utf-8"))
    read = [each for group in groups if "job" not in group["labels"] for each in group["targets"]]
    core = [name for name in OURS if "core" in CONTAINERS[name]["profiles"]]
    assert sorted(read) == sorted(f"{name}:9464" for name in core)


def test_prometheus_and_grafana_are_given_the_files_that_are_checked() -> None:
    mounts: dict[str, str] = {}
    for name in ("prometheus", "grafana"):
        for each in CONTAINERS[name]["volumes"]:
            source, target, *_ = each.split(":")
            if source.startswith("./") and "/secrets/" not in source:
                mounts[target] = source
                assert (ROOT / source).exists(), source
    config = yaml.safe_load((ROOT / mounts["/etc/prometheus/prometheus.yaml"]).read_text("utf-8"))
    folders = {each.rpartition("/")[0] for each in config["rule_files"]}
    (job,) = config["scrape_configs"]
    folders |= {each.rpartition("/")[0] for sd in job["file_sd_configs"] for each in sd["files"]}
    for folder in folders:
        assert list((ROOT / mounts[f"/etc/prometheus/{folder}"]).glob("*.yaml"))
    provisioning = ROOT / mounts["/etc/grafana/provisioning"]
    boards = yaml.safe_load((provisioning / "dashboards/bos.yaml").read_text("utf-8"))
    dashboards = ROOT / mounts[boards["providers"][0]["options"]["path"]]
    assert len(list(dashboards.glob("*.json"))) == 10
    sources = (provisioning / "datasources/bos.yaml").read_text("utf-8")
    wanted = set(re.findall(r"\$\{(\w+)\}", sources))
    assert wanted <= CONTAINERS["grafana"]["environment"].keys()


@pytest.mark.process
def test_compose_accepts_the_file_with_every_profile(project: Project) -> None:
    profiles = sorted({profile for each in CONTAINERS.values() for profile in each["profiles"]})
    given = [word for profile in profiles for word in ("--profile", profile)]
    read = json.loads(project.compose(*given, "config", "--format", "json"))
    assert set(read["services"]) == set(CONTAINERS)
    key = read["services"]["planner"]["environment"]["OPENAI_API_KEY"]
    assert key == read["services"]["demo"]["environment"]["BOS_DEMO_MODEL_KEY"]
    assert "OPENAI_API_KEY" not in read["services"]["sandbox"]["environment"]
    core = json.loads(project.compose("--profile", "core", "config", "--format", "json"))
    assert "demo" not in core["services"]
