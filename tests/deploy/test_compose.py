"""docker-compose.yml holds every service, confined, with settings that exist and no secret."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from collections.abc import Iterator, Mapping

from compose_files import ROOT, Project, compose_file

from bos_standalone.agents import SERVICES, installed_agents

DATA = compose_file()
CONTAINERS: Mapping[str, Any] = DATA["services"]
OF_OTHERS = {"postgres", "qdrant", "collector", "jaeger", "prometheus", "grafana"}
OURS = sorted(CONTAINERS.keys() - OF_OTHERS)
# Images that hold their program alone, so that no probe can run in them.
WITHOUT_A_PROBE = {"collector", "jaeger"}
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


def test_every_service_is_described_and_has_a_container() -> None:
    services = {name.replace("_", "-") for name in (*SERVICES, *installed_agents(), "rest", "demo")}
    assert set(OURS) == services


def test_containers_are_confined_bounded_and_probed() -> None:
    wrong = [
        name
        for name, container in CONTAINERS.items()
        if not (
            container["read_only"] is True
            and container["cap_drop"] == ["ALL"]
            and container["security_opt"] == ["no-new-privileges:true"]
            and not container.get("privileged")
            and "cap_add" not in container
            and all(container[key] for key in ("mem_limit", "pids_limit", "restart", "profiles"))
            and ("test" in container["healthcheck"]) is (name not in WITHOUT_A_PROBE)
            and container.get("user", "").partition(":")[0] not in ("root", "0")
            and all(port.startswith("127.0.0.1:") for port in container.get("ports", ()))
        )
    ]
    assert wrong == []


def test_images_of_others_are_pinned_by_digest_in_a_variable() -> None:
    pins = (ROOT / "deploy/images/pins.env").read_text("utf-8")
    for name in OF_OTHERS:
        image = CONTAINERS[name]["image"]
        assert DIGEST.fullmatch(image), name
        variable, _, pinned = image[2:-1].partition(":-")
        assert f"{variable}={pinned}\n" in pins, name


def test_base_of_our_images_is_the_pinned_one() -> None:
    given = CONTAINERS["gateway"]["build"]["args"]["PYTHON_IMAGE"]
    assert DIGEST.fullmatch(given)
    pinned = given[2:-1].partition(":-")[2]
    assert f"PYTHON_IMAGE={pinned}\n" in (ROOT / "deploy/images/pins.env").read_text("utf-8")
    for name in OURS:
        assert CONTAINERS[name]["build"]["args"]["PYTHON_IMAGE"] == given


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


def test_containers_are_given_their_own_secrets_alone(project: Project) -> None:
    for name in OURS:
        mounted = [each for each in CONTAINERS[name]["volumes"] if "/secrets/" in each]
        assert mounted == [f"./deploy/compose/secrets/{name}:/run/secrets/bos:ro"]
        for file in CONTAINERS[name]["env_file"]:
            assert Path(file).stem in (name, "telemetry", "model"), name
        there = {each.name for each in (project.secrets / name).iterdir()}
        wanted = {
            found
            for _, value in settings_of(CONTAINERS[name])
            for found in re.findall(r"/run/secrets/bos/([a-z.-]+)", value)
        }
        if name == "mcp-db":  # in the JSON of its env file
            wanted.add("database-password")
        assert there == wanted, name


def test_sandbox_has_no_way_out_and_only_its_certificate(
    project: Project,
) -> None:
    assert CONTAINERS["sandbox"]["networks"] == ["sandbox"]
    assert DATA["networks"]["sandbox"] == {"internal": True}
    there = {each.name for each in (project.secrets / "sandbox").iterdir()}
    assert there == {"ca.crt", "tls.crt", "tls.key", "run-tokens.pub"}
    assert "model" not in str(CONTAINERS["sandbox"]["env_file"])


def test_stores_are_reached_only_by_services_with_tables() -> None:
    assert DATA["networks"]["data"] == {"internal": True}
    inside = {name for name in CONTAINERS if "data" in CONTAINERS[name]["networks"]}
    assert inside - {"postgres", "qdrant"} == {
        name for name in OURS if "@postgres" in str(CONTAINERS[name]["environment"])
    } | {"mcp-db"}


def test_waiting_is_for_probed_containers_and_without_a_circle() -> None:
    waits = {name: set(each.get("depends_on", ())) for name, each in CONTAINERS.items()}
    for name, needed in waits.items():
        for each in needed:
            assert CONTAINERS[name]["depends_on"][each]["condition"] == "service_healthy"
            assert "test" in CONTAINERS[each]["healthcheck"]
    while waits:
        free = {name for name, needed in waits.items() if not needed & waits.keys()}
        assert free, f"a circle among {sorted(waits)}"
        waits = {name: needed for name, needed in waits.items() if name not in free}


def test_sample_database_is_all_its_tables(project: Project) -> None:
    text = (project.env / "mcp-db.env").read_text("utf-8")
    (databases,) = re.findall(r"^BOS_MCP_DB_DATABASES='(.*)'$", text, re.MULTILINE)
    schema = (ROOT / "services/demo/src/bos_demo/schema.sql").read_text("utf-8")
    tables = re.findall(r"^CREATE TABLE (\w+)", schema, re.MULTILINE)
    assert json.loads(databases)["company"]["allowed_tables"] == sorted(tables)


def test_prometheus_and_grafana_mount_the_checked_files() -> None:
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
