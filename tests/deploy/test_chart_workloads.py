"""Workloads: probes, shutdown, security contexts, availability, certificates, monitoring."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import from_descriptors
import pytest
from chart_rendering import CHART, Chart, Rendered, called, component, environment, peers

from bos_standalone.new_agent.command import agent_files

_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def test_probes_are_grpc_on_the_plain_health_port(profile: Rendered) -> None:
    for name, pod in profile.services().items():
        (container,) = pod["containers"]
        if name == "rest":
            continue
        port = int(environment(pod)["BOS_SERVER_HEALTH_PORT"])
        assert port != int(environment(pod)["BOS_SERVER_PORT"])
        for probe in _PROBES:
            assert container[probe]["grpc"] == {"port": port}, name


def test_rest_is_alive_by_itself_and_ready_with_its_gateway(profile: Rendered) -> None:
    (container,) = profile.services()["rest"]["containers"]
    paths = {probe: container[probe]["httpGet"]["path"] for probe in _PROBES}
    assert paths == dict(zip(_PROBES, ("/healthz", "/healthz", "/readyz"), strict=True))


def test_pods_live_longer_than_they_drain(profile: Rendered) -> None:
    for name, pod in profile.services().items():
        prefix = "BOS_REST" if name == "rest" else "BOS_SERVER"
        settings = environment(pod)
        pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        drain = int(settings[f"{prefix}_DRAIN_DELAY_S"]) + int(settings[f"{prefix}_GRACE_S"])
        assert pause >= 1, name
        # After the calls in flight the service still ends connections and flushes traces.
        assert pod["terminationGracePeriodSeconds"] >= pause + drain + 10, name


def test_longer_drain_makes_the_grace_of_the_pod_longer(chart: Chart) -> None:
    pod = chart.render("ha", "services.gateway.drain.graceS=600").services()["gateway"]
    assert environment(pod)["BOS_SERVER_GRACE_S"] == "600"
    assert pod["terminationGracePeriodSeconds"] > 600


def test_pods_keep_to_the_restricted_standard(profile: Rendered) -> None:
    for name, template in profile.pods():
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] == 65532, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name
        kinds = {next(k for k in volume if k != "name") for volume in pod["volumes"]}
        assert kinds <= {"emptyDir", "projected", "secret", "configMap", "persistentVolumeClaim"}, (
            name
        )


def test_every_service_can_write_to_tmp_within_bounds(profile: Rendered) -> None:
    for name, pod in profile.services().items():
        mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
        (volume,) = [each for each in pod["volumes"] if each["name"] == mounts["/tmp"]]
        assert volume["emptyDir"]["sizeLimit"], name


def test_available_release_survives_the_loss_of_a_node(rendered: dict[str, Rendered]) -> None:
    profile = rendered["ha"]
    budgets, scalers = profile.of("PodDisruptionBudget"), profile.of("HorizontalPodAutoscaler")
    for name, deployment in profile.of("Deployment").items():
        spec = deployment["spec"]
        least = scalers[name]["spec"]["minReplicas"] if name in scalers else spec["replicas"]
        assert least >= 2, name
        assert ("replicas" in spec) == (name not in scalers), name
        assert budgets[name]["spec"]["maxUnavailable"] == 1, name
        assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}, name
        spread = spec["template"]["spec"]["topologySpreadConstraints"]
        keys = {each["topologyKey"] for each in spread}
        assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}, name
        selector = spec["selector"]["matchLabels"]
        assert all(each["labelSelector"]["matchLabels"] == selector for each in spread), name
        assert budgets[name]["spec"]["selector"]["matchLabels"] == selector, name


def test_single_replicas_do_not_block_draining_a_node(
    rendered: dict[str, Rendered],
) -> None:
    assert not rendered["minimal"].of("PodDisruptionBudget")


def test_gateways_scale_with_processors_and_with_runs_in_flight(
    rendered: dict[str, Rendered],
) -> None:
    spec = rendered["ha"].of("HorizontalPodAutoscaler")["gateway"]["spec"]
    resource, pods = spec["metrics"]
    assert resource["resource"]["name"] == "cpu"
    assert pods["pods"]["metric"]["name"] == "bos_runs_active"
    assert spec["maxReplicas"] > spec["minReplicas"] == 3


def test_index_on_a_volume_is_never_opened_by_two(rendered: dict[str, Rendered]) -> None:
    for name, kind in (("minimal", "Recreate"), ("ha", "RollingUpdate")):
        deployment = rendered[name].of("Deployment")["documents"]
        assert deployment["spec"]["strategy"]["type"] == kind
        settings = environment(deployment["spec"]["template"]["spec"])
        assert ("BOS_DOCUMENTS_INDEX_FOLDER" in settings) == (name == "minimal")
        assert ("BOS_DOCUMENTS_QDRANT_URL" in settings) == (name == "ha")


def test_volumes_of_pods_are_claimed(profile: Rendered) -> None:
    claimed = {f"bos-{name}" for name in profile.of("PersistentVolumeClaim")}
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for _, template in profile.pods()
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert used == claimed


def test_certificates_name_service_and_hosts(
    rendered: dict[str, Rendered],
) -> None:
    profile = rendered["ha"]
    certificates = profile.of("Certificate")
    for name, pod in profile.services().items():
        spec = certificates[name]["spec"]
        assert [uri.replace("_", "-") for uri in spec["uris"]] == [f"spiffe://bos/{name}"]
        assert {"server auth", "client auth"} <= set(spec["usages"])
        assert f"bos-{name}" in spec["dnsNames"]
        (volume,) = [each for each in pod["volumes"] if each["name"] == "tls"]
        assert volume["secret"]["secretName"] == spec["secretName"]
        assert environment(pod)["BOS_TLS_CERT_FILE"] == "/run/secrets/tls/tls.crt"
    assert certificates["mcp-db"]["spec"]["uris"] == ["spiffe://bos/mcp_db"]
    assert (
        environment(profile.services()["sql"])["BOS_SQL_MCP_URL"] == "https://bos-mcp-db:8080/mcp"
    )


def test_given_certificates_are_mounted_and_none_is_issued(rendered: dict[str, Rendered]) -> None:
    profile = rendered["airgapped"]
    assert not profile.of("Certificate")
    assert all(
        any(
            each.get("secret", {}).get("secretName") == f"bos-{name}-tls" for each in pod["volumes"]
        )
        for name, pod in profile.services().items()
    )


def test_without_certificates_services_speak_plain_text(rendered: dict[str, Rendered]) -> None:
    profile = rendered["minimal"]
    assert environment(profile.services()["sql"])["BOS_SQL_MCP_URL"] == "http://bos-mcp-db:8080/mcp"
    for pod in profile.services().values():
        assert not any(name.startswith("BOS_TLS_") for name in environment(pod))
        assert all(volume["name"] != "tls" for volume in pod["volumes"])


def test_every_address_is_a_service_with_that_port(profile: Rendered) -> None:
    services = profile.of("Service")
    for pod in profile.services().values():
        assert called(environment(pod)) <= services.keys()
    for name in profile.services():
        spec = services[name]["spec"]
        assert {port["port"] for port in spec["ports"]} == {8080, 9464}
        # Callers by gRPC take turns over all pods, so they have to see them.
        grpc = "grpc" in str(profile.services()[name]["containers"][0]["readinessProbe"])
        grpc &= name not in ("mcp-db", "protocols")
        assert (spec.get("clusterIP") == "None") == grpc, name


def test_sandbox_has_the_runtime_class_that_it_is_given(rendered: dict[str, Rendered]) -> None:
    classes = {
        name: pod["runtimeClassName"]
        for name, pod in rendered["ha"].services().items()
        if "runtimeClassName" in pod
    }
    assert classes == {"sandbox": "gvisor"}


def test_images_are_named_by_digest_where_there_is_one(rendered: dict[str, Rendered]) -> None:
    pods = rendered["airgapped"].services()
    gateway, planner = (pods[name]["containers"][0]["image"] for name in ("gateway", "planner"))
    assert gateway.startswith("registry.corp.example/bos/gateway@sha256:")
    assert planner == "registry.corp.example/bos/planner:0.1.0"
    assert pods["planner"]["imagePullSecrets"] == [{"name": "registry-corp"}]


@pytest.mark.parametrize(
    ("name", "hook"),
    [("ha", "pre-install,pre-upgrade"), ("minimal", "post-install,pre-upgrade")],
)
def test_tables_are_migrated_before_services_are_replaced(
    rendered: dict[str, Rendered], name: str, hook: str
) -> None:
    job = rendered[name].of("Job")["migrations"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == hook
    containers = job["spec"]["template"]["spec"]["containers"]
    stores = {
        name
        for name, pod in rendered[name].services().items()
        if any(each.endswith("_STORE_URL") for each in environment(pod))
    }
    assert (
        {each["name"] for each in containers}
        == stores
        == {*("gateway", "identity", "memory", "documents", "files")}
    )
    assert all(each["args"] == ["migrate"] for each in containers)


def test_monitor_reads_the_metrics_of_every_service(rendered: dict[str, Rendered]) -> None:
    (monitor,) = rendered["ha"].of("ServiceMonitor").values()
    (endpoint,) = monitor["spec"]["endpoints"]
    selector = monitor["spec"]["selector"]["matchLabels"]
    services = rendered["ha"].of("Service")
    for name in rendered["ha"].services():
        assert selector.items() <= services[name]["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in services[name]["spec"]["ports"]}
    assert endpoint["honorLabels"] is True
    assert {"targetLabel": "job", "replacement": "bos", "action": "replace"} in endpoint[
        "relabelings"
    ]


@pytest.fixture
def with_files(chart: Chart, tmp_path: Path) -> Chart:
    """The chart with one file of rules and one dashboard, as `make chart` puts them there."""
    folder = tmp_path / "bos"
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("files"))
    (folder / "files/rules").mkdir(parents=True)
    (folder / "files/dashboards").mkdir()
    rule: dict[str, Any] = {"alert": "BosDown", "expr": "up == 0"}
    rule["annotations"] = {"summary": "{{ $labels.instance }} is down"}
    groups = {"groups": [{"name": "bos", "rules": [rule]}]}
    (folder / "files/rules/alerts.yaml").write_text(json.dumps(groups))
    (folder / "files/dashboards/run_log.json").write_text('{"title": "{{agent}} `log`"}\n')
    return replace(chart, folder=folder)


def test_rules_and_dashboards_are_taken_as_they_are(with_files: Chart) -> None:
    profile = with_files.render("ha")
    (rule,) = profile.of("PrometheusRule").values()
    (found,) = rule["spec"]["groups"][0]["rules"]
    assert found["annotations"]["summary"] == "{{ $labels.instance }} is down"
    assert rule["metadata"]["labels"]["release"] == "monitoring"
    dashboard = profile.of("ConfigMap")["dashboard-run-log"]
    assert json.loads(dashboard["data"]["run_log.json"]) == {"title": "{{agent}} `log`"}
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_rules_and_dashboards_are_left_out_where_they_are_off(with_files: Chart) -> None:
    profile = with_files.render("minimal")
    assert not profile.of("PrometheusRule")
    assert not [name for name in profile.of("ConfigMap") if name.startswith("dashboard")]


def test_question_is_asked_by_rest_with_a_key_of_a_secret(rendered: dict[str, Rendered]) -> None:
    job = rendered["minimal"].of("Job")["test"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "test"
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][0] == "http://bos-rest:8080"
    (key,) = [each["secret"] for each in pod["volumes"] if each["name"] == "key"]
    assert key["secretName"] == "bos-keys"
    assert component(job["metadata"]["labels"]) == "test"


def test_new_agent_is_rendered_like_others(chart: Chart, described_tree: Path) -> None:
    """What `bos new agent` writes, and what is made of it: workload, settings, policy, secrets."""
    folder = described_tree / "services/agents/summary"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(agent_files("summary", "", "", "")["pyproject.toml"])
    assert from_descriptors.main(["--root", str(described_tree)]) == 0
    shutil.copytree(
        CHART, described_tree / "helm/bos", dirs_exist_ok=True, ignore=lambda *_: {"values.yaml"}
    )

    found = replace(chart, folder=described_tree / "helm/bos").render("ha")

    for objects in (
        found.services(),
        found.policies(),
        found.of("Service"),
        found.of("Certificate"),
    ):
        assert json.dumps(objects["summary"]) == re.sub(
            r"\btext\b", "summary", json.dumps(objects["text"])
        )
    (container,) = found.services()["summary"]["containers"]
    assert container["readinessProbe"]["grpc"]
    gateway = environment(found.services()["gateway"])["BOS_GATEWAY_AGENT_TARGETS"]
    assert "summary=dns:///bos-summary:8080" in gateway.split(",")
    assert "summary" in peers(found.policies()["gateway"]["egress"], "to")


def test_rest_is_offered_by_ingress_and_by_gateway(rendered: dict[str, Rendered]) -> None:
    (ingress,) = rendered["ha"].of("Ingress").values()
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "bos.example.org"
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == "bos-rest"
    (route,) = rendered["ha"].of("HTTPRoute").values()
    assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "bos-rest", "port": 8080}]
    assert not rendered["minimal"].of("Ingress")
