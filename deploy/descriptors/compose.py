"""Containers of docker-compose.yml, keys of secrets.sh, and Prometheus targets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from descriptors.descriptor import Descriptor, Services

_SECRETS = "/run/secrets/bos"
_DATA = "/var/lib/bos"


def address(called: Descriptor, setting: str = "") -> str:
    """Address of a service for a setting that takes it."""
    if called.protocol == "grpc":
        return f"dns:///{called.host}:8080"
    scheme, path = ("https://", called.path) if setting.endswith("_URL") else ("", "")
    return f"{scheme}{called.host}:8080{path}"


def containers(services: Services) -> str:
    """Entries below ``services:``; the anchors that they use stand at the top of the file."""
    return "\n".join(_container(services, each) for each in services.all)


def volumes(services: Services) -> str:
    """Entries below ``volumes:``."""
    return "".join(f"  {_volume(each)}: {{}}\n" for each in services.all if each.blobs)


def key_lists(services: Services) -> str:
    """Variables of secrets.sh: which services get which keys."""
    targets = ",".join(
        f"{each.name}={address(each)}" for each in services.agents if not each.on_request
    )
    lists = {
        "SERVICES": _hosts(services.all),
        "STORES": _hosts(services.stores),
        "USERS": _hosts(each for each in services.all if "users" in each.callers),
        "RUN_TOKENS": _hosts(each for each in services.all if each.takes_run_tokens),
        "AGENT_TARGETS": targets,
    }
    return "".join(f'{name}="{text}"\n' for name, text in lists.items())


def roles(services: Services) -> str:
    """Variable of roles.sh: which services have a schema."""
    return f'STORES="{_hosts(services.stores)}"\n'


def targets(services: Services) -> str:
    """Prometheus targets of the Python services and of REST."""
    python = [each for each in services.standing if each.kind != "rest"]
    lines = ["- labels: {component: python}", "  targets:"]
    lines += [f"    - {each.host}:9464" for each in python]
    for each in services.standing:
        if each.kind == "rest":
            lines += ["- labels: {component: rest}", f"  targets: [{each.host}:9464]"]
    return "\n".join(lines) + "\n"


def _hosts(found: Any) -> str:
    return " ".join(each.host for each in found)


def _volume(service: Descriptor) -> str:
    return service.compose.volume or service.name


def _container(services: Services, service: Descriptor) -> str:
    own = service.compose
    args = "*args" if service.kind == "rest" else f"{{<<: *args, SERVICE: {service.folder[9:]}}}"
    build = (
        "{context: ., dockerfile: deploy/images/rest.Dockerfile, args: *args}"
        if service.kind == "rest"
        else f"{{<<: *build, args: {args}}}"
    )
    host = service.host
    files = [f"deploy/compose/env/{name}.env" for name in _settings_files(service)]
    lines = [f"  # {service.description}.", f"  {host}:", "    <<: *service"]
    if service.on_request:
        lines.insert(
            1, "  # BOS_GATEWAY_AGENT_TARGETS in deploy/compose/env/gateway.env has to name it too."
        )
        lines.append(f"    profiles: [{host}]")
    lines += [
        f"    image: ${{BOS_IMAGES:-bos}}/{host}:${{BOS_VERSION:-dev}}",
        f"    build: {build}",
        f"    env_file: [{', '.join(files)}]",
        *_environment(services, service),
        "    volumes:",
        f"      - ./deploy/compose/secrets/{host}:{_SECRETS}:ro",
    ]
    if service.blobs:
        lines.append(f"      - {_volume(service)}:{_DATA}")
    lines += [f"      - {each}" for each in own.volumes]
    lines.append(f"    networks: [{', '.join(_networks(services, service))}]")
    if after := _after(service):
        lines.append("    depends_on:")
        lines += [f"      {name}: {condition}" for name, condition in after.items()]
    if own.ports:
        lines.append(f"    ports: {json.dumps(own.ports)}")
    if own.memory:
        lines.append(f"    mem_limit: {own.memory}")
    lines += _healthcheck(service)
    return "\n".join(lines) + "\n"


def _settings_files(service: Descriptor) -> Sequence[str]:
    return ("telemetry", *(("model",) if service.models else ()), service.host)


def _environment(services: Services, service: Descriptor) -> list[str]:
    if "steps" in service.callers:
        anchors = ["*step"]
    else:
        anchors = ["*inner"] if "gateway" in service.callers else ["*tls"]
    if "users" in service.callers:
        anchors.append("*users")
    settings = _settings(services, service)
    merged = anchors[0] if len(anchors) == 1 else f"[{', '.join(anchors)}]"
    if not settings and len(anchors) == 1:
        return [f"    environment: {merged}"]
    return [
        "    environment:",
        f"      <<: {merged}",
        *(f"      {name}: {_scalar(text)}" for name, text in settings.items()),
    ]


def _settings(services: Services, service: Descriptor) -> Mapping[str, str]:
    found = {
        setting: address(services[name], setting) for name, setting in service.all_calls.items()
    }
    if service.store:
        found[service.store_setting] = (
            f"postgresql://bos_{service.name}@postgres:5432/bos"
            f"?password_file={_SECRETS}/database-password"
        )
    if service.blobs:
        found[service.blobs] = f"file://{_DATA}/{service.compose.folder}"
    if service.index:
        found[service.index] = f"{_DATA}/index"
    if service.calls_agents:
        audiences = {each.name: services.audiences(each) for each in services.agents}
        connections = {each.name: each.connections for each in services.agents}
        found["BOS_GATEWAY_AGENT_AUDIENCES"] = json.dumps({"*": [], **_given(audiences)})
        found["BOS_GATEWAY_AGENT_CONNECTIONS"] = json.dumps(_given(connections))
    if service.calls_account_data:
        held = {each.name: address(each) for each in services.all if each.account_data}
        found[service.calls_account_data] = json.dumps(held)
    return {**found, **service.compose.environment}


def _given(lists: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: each for name, each in lists.items() if each}


def _scalar(text: str) -> str:
    """A string of YAML: in quotes where it would be something else."""
    if text.startswith("{"):
        return f"'{text}'"
    return json.dumps(text) if text in ("true", "false") or text.isdigit() else text


def _networks(services: Services, service: Descriptor) -> list[str]:
    if service.isolated:
        return [service.host]
    # What is isolated asks the gateway whether a step is under way.
    isolated = [
        each.host
        for each in services.all
        if each.isolated and (each.name in service.all_calls or service.calls_agents)
    ]
    found = ["edge"] if service.compose.ports else []
    found.append("inside")
    if service.store:
        found.append("data")
    if not service.compose.ports and (service.models or service.egress):
        found.append("outside")
    return [*dict.fromkeys([*found, *service.compose.networks, *isolated])]


def _after(service: Descriptor) -> Mapping[str, str]:
    found = {"postgres": True} if service.store else {}
    if service.index:
        found["qdrant"] = False
    return {
        name: "{condition: service_healthy}"
        if required
        else "{condition: service_healthy, required: false}"
        for name, required in {**found, **service.compose.after}.items()
    }


def _healthcheck(service: Descriptor) -> list[str]:
    own = service.compose.healthcheck
    base = "*answers" if service.protocol == "http" and "test" not in own else "*serves"
    if own:
        parts = [f"<<: {base}"]
        parts += [
            f"{key}: {json.dumps(value) if isinstance(value, list) else value}"
            for key, value in own.items()
        ]
        return [f"    healthcheck: {{{', '.join(parts)}}}"]
    return [] if base == "*serves" else [f"    healthcheck: {base}"]
