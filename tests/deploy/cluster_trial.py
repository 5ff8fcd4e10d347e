"""The chart on a real API server: every profile installed, upgraded, rolled back and removed.

It builds Kubernetes from source once on a machine: `make test-cluster`, not `make test`.
"""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_rendering import CHART, PROFILES, Chart, Rendered
from control_plane import ControlPlane, control_plane

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

_KINDS = (
    *("deployment", "statefulset", "job", "service", "serviceaccount", "networkpolicy"),
    *("poddisruptionbudget", "horizontalpodautoscaler", "ingress", "configmap"),
    *("certificate", "issuer", "servicemonitor", "prometheusrule", "httproute"),
)
# CI brings one of them through its life, which takes a minute or more; all are by hand.
_TRIED = os.environ.get("BOS_TEST_CLUSTER_PROFILES", " ".join(PROFILES)).split()
_OF_THE_NAMESPACE = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
_RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "gvisor"},
    "handler": "runsc",
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    tools = os.environ.get("BOS_TEST_CLUSTER_TOOLS")
    assert tools, "`make test-cluster` builds the programs and names their folder"
    running = control_plane(Path(tools), tmp_path_factory.mktemp("cluster"))
    with asyncio.Runner() as runner:
        started = runner.run(running.__aenter__())
        try:
            started.kubectl("create", "-f", str(Path(tools) / "definitions"))
            started.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            started.kubectl("create", "-f", "-", given=yaml.safe_dump(_RUNTIME_CLASS))
            yield started
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
def cluster_chart(plane: ControlPlane) -> Chart:
    return Chart(plane.tool("helm"))


def _namespace(plane: ControlPlane, name: str) -> None:
    """A namespace that runs nothing but what the restricted standard allows."""
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    given = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    plane.kubectl("create", "-f", "-", given=yaml.safe_dump(given))


def _ready_pods(plane: ControlPlane, namespace: str) -> dict[str, int]:
    """Ready pods of each Deployment but those whose autoscaler decides, which comes later."""
    found = json.loads(plane.kubectl("-n", namespace, "get", "deployment", "-o", "json"))["items"]
    scaled = {name.rpartition("/")[2] for name in plane.objects(namespace, "hpa")}
    return {
        each["metadata"]["name"].removeprefix("bos-"): each["status"].get("readyReplicas", 0)
        for each in found
        if each["metadata"]["name"] not in scaled
    }


def _images(plane: ControlPlane, namespace: str) -> set[str]:
    found = json.loads(plane.kubectl("-n", namespace, "get", "pod", "-o", "json"))["items"]
    return {
        container["image"]
        for pod in found
        if not pod["metadata"].get("deletionTimestamp")
        and pod["metadata"]["labels"]["app.kubernetes.io/component"] == "planner"
        for container in pod["spec"]["containers"]
    }


@pytest.mark.parametrize("name", _TRIED)
def test_profile_is_installed_upgraded_rolled_back_and_removed(
    plane: ControlPlane, name: str
) -> None:
    _namespace(plane, name)
    chart = ("bos", str(CHART), "-n", name, "-f", str(CHART / f"ci/{name}.yaml"))
    waiting = ("--wait", "--timeout", "180s")
    begun = time.monotonic()

    plane.helm("install", *chart, *waiting)
    first = _ready_pods(plane, name)
    assert {"protocols", "identity", "planner", "sandbox", "sql"} <= first.keys()
    assert min(first.values()) >= (1 if name == "minimal" else 2)
    before = _images(plane, name)

    plane.helm("upgrade", *chart, *waiting, "--set", "image.tag=9.9.9")
    (after,) = _images(plane, name)
    assert after.endswith("/planner:9.9.9")

    plane.helm("rollback", "bos", "1", "-n", name, *waiting)
    assert _images(plane, name) == before
    assert _ready_pods(plane, name) == first

    plane.helm("uninstall", "bos", "-n", name, "--wait", "--timeout", "180s")
    assert set(plane.objects(name, *_KINDS)) <= _OF_THE_NAMESPACE | {"networkpolicy", "job"}
    # Files of users are kept; the index is made anew from the tables.
    claims = plane.objects(name, "persistentvolumeclaim")
    assert all(claim.endswith("-files") or "data-bos" in claim for claim in claims), claims
    print(f"\n{name}: {time.monotonic() - begun:.0f} s")


@pytest.mark.parametrize("name", PROFILES)
def test_api_server_takes_every_object_strictly(
    plane: ControlPlane, cluster_chart: Chart, name: str
) -> None:
    namespace = f"strict-{name}"
    _namespace(plane, namespace)
    given = yaml.safe_dump_all(_of(cluster_chart.render(name), namespace))
    arguments = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    ended = plane.tried("kubectl", "-n", namespace, *arguments, given=given, check=True)
    # Pod Security warns where a workload's pods would be refused.
    assert "violate" not in ended.stderr
    assert ended.stdout.count("(server dry run)") == len(list(yaml.safe_load_all(given)))


def _of(rendered: Rendered, namespace: str) -> list[dict[str, Any]]:
    return [
        {**each, "metadata": {**each["metadata"], "namespace": namespace}}
        for each in rendered.objects
    ]


@pytest.mark.parametrize(
    ("kind", "path", "value", "problem"),
    [
        ("Deployment", ("spec", "replica"), 3, "unknown field"),
        ("NetworkPolicy", ("spec", "egres"), [], "unknown field"),
        ("Certificate", ("spec", "dnsName"), "x", "unknown field"),
        ("ServiceMonitor", ("spec", "endpoint"), [], "unknown field"),
        ("HTTPRoute", ("spec", "parents"), [], "unknown field"),
        ("Service", ("spec", "ports"), [{"name": "main", "port": 99999}], "Invalid value"),
        ("Certificate", ("spec", "usages"), ["everything"], "Unsupported value"),
        ("PodDisruptionBudget", ("spec", "maxUnavailable"), "many", "Invalid value"),
    ],
)
def test_api_server_refuses_what_is_wrong(
    plane: ControlPlane,
    cluster_chart: Chart,
    kind: str,
    path: tuple[str, str],
    value: object,
    problem: str,
) -> None:
    """The same way of asking notices each of these, so that what it takes means something."""
    wrong = next(iter(cluster_chart.render("ha").of(kind).values()))
    wrong[path[0]][path[1]] = value
    arguments = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    ended = plane.tried("kubectl", "-n", "default", *arguments, given=yaml.safe_dump(wrong))
    assert ended.returncode != 0
    assert problem in ended.stderr


def test_pod_that_is_not_restricted_does_not_start(
    plane: ControlPlane, cluster_chart: Chart
) -> None:
    _namespace(plane, "enforced")
    template = cluster_chart.render("minimal").of("Deployment")["sandbox"]["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {"name": "sandbox", "namespace": "enforced"}
    del pod["spec"]["serviceAccountName"]
    for constraint in pod["spec"]["topologySpreadConstraints"]:
        constraint.pop("matchLabelKeys")
    create = ("create", "--dry-run=server", "-f", "-")
    assert plane.tried("kubectl", *create, given=yaml.safe_dump(pod)).returncode == 0
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    ended = plane.tried("kubectl", *create, given=yaml.safe_dump(pod))
    assert ended.returncode != 0
    assert 'violates PodSecurity "restricted' in ended.stderr


def test_upgrade_that_is_refused_leaves_the_release_as_it_was(
    plane: ControlPlane, cluster_chart: Chart, tmp_path: Path
) -> None:
    _namespace(plane, "refused")
    broken = replace(cluster_chart, folder=tmp_path / "bos")
    shutil.copytree(CHART, broken.folder)
    values = ("-n", "refused", "-f", str(CHART / "ci/airgapped.yaml"))
    plane.helm("install", "bos", str(CHART), *values, "--wait", "--timeout", "180s")
    before = _ready_pods(plane, "refused")
    service = broken.folder / "templates/service.yaml"
    service.write_text(service.read_text().replace("port: 8080", "port: 99999"))
    ended = plane.tried(
        "helm", "upgrade", "bos", str(broken.folder), *values, "--rollback-on-failure", "--wait"
    )
    assert ended.returncode != 0
    assert "99999" in ended.stderr
    assert _ready_pods(plane, "refused") == before
