"""Settings in the chart: all known, all loadable by their services, secrets only from Secrets."""

import base64
import importlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_rendering import CHART, ROOT, Rendered, environment, from_secrets, mounted_keys
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from bos_chassis.settings import Settings, settings_from
from bos_standalone.agents import SERVICES, agent_factory, installed_agents

_ROW = re.compile(r"^\| (`[^|]+`(?: or `[^|]+`)*) \| ([^|]*) \|", re.MULTILINE)
_PART = re.compile(r"part `(\w+)`")
# Of the libraries that talk to S3, not settings of ours.
_OF_OTHERS = {"AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
_OF_STORES = {"POSTGRES_", "PGDATA", "QDRANT__"}
SecretsByName = dict[str, dict[str, str]]


def _reference() -> dict[str, str]:
    """What each variable holds, as the pages of settings say."""
    page = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    found = {
        name.strip("` "): holds
        for names, holds in _ROW.findall(page)
        for name in names.split(" or ")
        if not name.strip("` ").endswith("…")
    }
    rest = (ROOT / "services/rest/README.md").read_text("utf-8")
    return found | {name.strip("`"): "" for name, _ in _ROW.findall(rest)}


@pytest.fixture(scope="session")
def reference() -> dict[str, str]:
    found = _reference()
    assert {"BOS_SERVER_HEALTH_PORT", "BOS_REST_GRACE_S", "OPENAI_API_KEY"} <= found.keys()
    return found


@pytest.fixture(scope="session")
def made_secrets() -> SecretsByName:
    """The Secrets that the chart's script makes."""
    command = ["sh", str(CHART / "scripts/make-secrets.sh"), "a password"]
    printed = subprocess.run(command, check=True, text=True, capture_output=True).stdout
    return {
        each["metadata"]["name"]: {
            key: base64.b64decode(text, validate=True).decode()
            for key, text in each["data"].items()
        }
        for each in yaml.safe_load_all(printed)
    }


def test_every_variable_is_a_setting(profile: Rendered, reference: dict[str, str]) -> None:
    known = {*reference, *_OF_OTHERS}
    for name, template in profile.pods():
        pod = template["spec"]
        for number in range(len(pod["containers"])):
            given = {each["name"] for each in pod["containers"][number].get("env", [])}
            given = {each for each in given if not each.startswith(tuple(_OF_STORES))}
            assert given <= known, name


def test_secrets_are_never_written_out(profile: Rendered, reference: dict[str, str]) -> None:
    secrets = {name for name, holds in reference.items() if holds.startswith("secret")}
    secrets |= {"BOS_GATEWAY_SECRETS_KEYS", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"}
    for name, template in profile.pods():
        for number in range(len(template["spec"]["containers"])):
            settings = environment(template["spec"], number)
            assert not secrets & settings.keys(), name
            for variable, text in settings.items():
                assert not re.search(r"://[^/@]*:[^/@]*@", text), f"{name}: password in {variable}"
                assert "PRIVATE KEY" not in text, f"{name}: key in {variable}"


def test_chart_makes_no_secret_and_no_config_map_with_one(profile: Rendered) -> None:
    assert not profile.of("Secret")
    for name, each in profile.of("ConfigMap").items():
        dashboard = name.removeprefix("dashboard-")
        assert set(each["data"]) == {"ask.py" if dashboard == name else f"{dashboard}.json"}, name
        for text in each["data"].values():
            assert not re.search(r"PRIVATE KEY|password\s*=|BOS_\w+_KEYS?=", text), name


def test_each_pod_is_given_the_keys_it_needs_and_no_others(profile: Rendered) -> None:
    """The keys that sign are where they sign; all others have the public part."""
    holders: dict[str, set[str]] = {}
    for name, pod in profile.services().items():
        for _, key in {**from_secrets(pod), **mounted_keys(pod)}.values():
            holders.setdefault(key, set()).add(name)
    assert holders["run-token-private.pem"] == {"gateway"}
    assert holders["rest-private.pem"] == holders["rest-session-keys"] == {"rest"}
    assert holders["gateway-secrets-keys"] == {"gateway"}
    assert holders["identity-keys"] == holders["identity-bootstrap-token"] == {"identity"}
    assert "rest" not in holders["run-token-public.pem"]
    assert "sandbox" in holders["run-token-public.pem"]
    (sandbox,) = [pod for name, pod in profile.services().items() if name == "sandbox"]
    assert {key for _, key in mounted_keys(sandbox).values()} == {"run-token-public.pem"}
    assert not from_secrets(sandbox)


def test_secrets_of_the_script_are_those_that_pods_ask_for(
    rendered: dict[str, Rendered], made_secrets: SecretsByName
) -> None:
    for name, pod in rendered["minimal"].services().items():
        for secret, key in {**from_secrets(pod), **mounted_keys(pod)}.values():
            if secret != "bos-database":  # the one of your own data
                assert key in made_secrets[secret], name


def test_secrets_of_the_script_are_usable(made_secrets: SecretsByName) -> None:
    keys = made_secrets["bos-keys"]
    for name in ("run-token", "rest"):
        private = load_pem_private_key(keys[f"{name}-private.pem"].encode(), None)
        public = load_pem_public_key(keys[f"{name}-public.pem"].encode())
        assert private.public_key() == public
    Fernet(keys["identity-keys"])
    assert len(keys["static-keys"]) >= 16
    assert made_secrets["bos-postgresql"] == {"password": "a password"}


def _settings_class(name: str) -> type[Settings]:
    """Class of the settings of a service or an agent, as its process loads it."""
    if name in SERVICES:
        module = importlib.import_module(f"bos_{name}.settings")
        prefix = "".join(part.capitalize() for part in name.split("_"))
        found: type[Settings] = getattr(module, f"{prefix}Settings")
        return found
    return agent_factory(name, installed_agents()[name]).settings


def _load(pod: dict[str, Any], made: SecretsByName, folder: Path, name: str) -> Any:
    """The service's settings from the environment of its pod, with files below ``folder``."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in [each for each in os.environ if each.startswith(("BOS_", "OPENAI_"))]:
            patch.delenv(variable)
        for variable, text in environment(pod).items():
            patch.setenv(variable, text.replace("/run/secrets", f"{folder}/secrets"))
        for variable, (secret, key) in from_secrets(pod).items():
            patch.setenv(variable, made.get(secret, {}).get(key, "postgresql://reader@db/data"))
        for file, (secret, key) in mounted_keys(pod).items():
            path = folder / "secrets/bos" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made.get(secret, {}).get(key, "something"))
        with settings_from("environment"):
            return _settings_class(name).load()


def test_every_service_loads_its_settings(
    profile: Rendered, made_secrets: SecretsByName, tmp_path: Path
) -> None:
    for name, pod in profile.services().items():
        if name == "rest":
            continue  # in Go; its variables are compared with its README above
        settings = _load(pod, made_secrets, tmp_path / name, name.replace("-", "_"))
        assert settings.server.host == "0.0.0.0", name
        assert settings.server.health_port == 8081, name
        # The drain that the chart counts with is the one that the service keeps.
        drained = settings.server.drain_delay_s + settings.server.grace_s
        assert pod["terminationGracePeriodSeconds"] > drained, name


def test_gateway_is_given_agents_and_what_each_may_call(
    rendered: dict[str, Rendered], made_secrets: SecretsByName, tmp_path: Path
) -> None:
    pod = rendered["ha"].services()["gateway"]
    settings = _load(pod, made_secrets, tmp_path, "gateway")
    assert settings.agent_targets["api_docs"] == "dns:///bos-api-docs:8080"
    assert settings.agent_audiences == {
        "*": (),
        "sql": ("mcp_db", "file_tables"),
        "rag": ("documents",),
        "code": ("sandbox",),
        "computation": ("sandbox",),
    }
    assert settings.agent_connections == {"mail": ("mail.gmail", "mail.imap")}
    assert settings.secrets_key_ring().ids == {"k1"}


def test_each_store_has_its_own_role_where_one_is_given(rendered: dict[str, Rendered]) -> None:
    pods = rendered["ha"].services()
    gateway, memory = (environment(pods[name]) for name in ("gateway", "memory"))
    assert gateway["BOS_GATEWAY_STORE_URL"] == (
        "postgresql://bos_gateway@postgresql.databases.svc:5432/bos"
        "?password_file=/run/secrets/bos/postgresql-password"
        "&sslmode=verify-full&sslrootcert=/run/secrets/bos/postgresql-ca.crt"
    )
    assert memory["BOS_MEMORY_STORE_URL"].startswith("postgresql://bos@")
    assert mounted_keys(pods["gateway"])["postgresql-password"] == ("bos-postgresql", "gateway")
    assert mounted_keys(pods["memory"])["postgresql-password"] == ("bos-postgresql", "password")


def test_users_settings_win_over_those_of_the_chart(chart: Any) -> None:
    pod = chart.render(
        "ha",
        'env={"BOS_LOG_LEVEL": "debug", "BOS_GATEWAY_SECRET_CONTEXT_KEYS": "api_token"}',
        'services.sql.env={"BOS_LOG_LEVEL": "error"}',
    ).services()
    assert environment(pod["gateway"])["BOS_LOG_LEVEL"] == "debug"
    assert environment(pod["sql"])["BOS_LOG_LEVEL"] == "error"


def test_images_of_others_in_the_chart_are_the_pinned_ones() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    pins = (ROOT / "deploy/images/pins.env").read_text("utf-8")
    for part in ("postgresql", "qdrant"):
        assert f"_IMAGE={values[part]['bundled']['image']}\n" in pins
