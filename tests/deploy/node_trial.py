"""The chart on a real node, from our own images: installed, asked, upgraded, killed, rolled back.

Questions are asked all the time. It takes root on Debian, Kubernetes built from source, all images,
and minutes: `make trial NAME=node` by hand, neither `make test` nor CI.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import urllib.request
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_rendering import CHART
from control_plane import control_plane
from real_node import NODE, real_node, run

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy/images"))
from collections.abc import Iterator

from control_plane import ControlPlane
from real_node import Node

import build

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

SPACE = "bos"
POSTGRES = "bos-trial/postgres"
QUESTION = "What is 17 * 23?"
ANSWER = "391"
_ASKERS = 2
_PAUSE_S = 0.5
_WAITING = ("--wait", "--timeout", "900s")
_LEFT_OUT = os.environ.get("BOS_TEST_NODE_LEFT_OUT", "").split()
_SUCCEEDED = "RUN_STATUS_SUCCEEDED"
_ENDS = (_SUCCEEDED, "RUN_STATUS_PARTIALLY_SUCCEEDED", "RUN_STATUS_FAILED", "RUN_STATUS_CANCELLED")
_SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}}


@dataclass
class Cluster:
    """A control plane with one real node."""

    plane: ControlPlane
    node: Node
    values: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def helm(self, what: str, *arguments: str) -> str:
        """Standard output of helm, whose time is noted under ``what``."""
        begun = time.monotonic()
        said = self.plane.helm(*arguments, "-n", SPACE)
        self.seconds[what] = time.monotonic() - begun
        return said

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Pods of a service that are not on their way out."""
        chosen = f"app.kubernetes.io/component={component}"
        found = self.plane.kubectl("-n", SPACE, "get", "pod", "-l", chosen, "-o", "json")
        return [p for p in json.loads(found)["items"] if not p["metadata"].get("deletionTimestamp")]

    def address(self, service: str) -> str:
        """Where a service listens, as kube-proxy has it on this machine as well."""
        path = "jsonpath={.spec.clusterIP}"
        return self.plane.kubectl("-n", SPACE, "get", "service", f"bos-{service}", "-o", path)


@dataclass
class Load:
    """Questions over REST, each submitted until it is accepted and followed until it has ended."""

    url: str
    key: str
    ended: list[str] = field(default_factory=list)
    """Status of each accepted run."""
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    """Requests that found no server, or were refused; each was repeated."""
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._threads = [threading.Thread(target=self._ask) for _ in range(_ASKERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int) -> None:
        """Return once so many more questions were answered."""
        wanted = len(self.ended) + count
        while len(self.ended) < wanted:
            time.sleep(_PAUSE_S)

    def _ask(self) -> None:
        while not self._over.is_set():
            # Repeated by the same id it is the same run.
            asked = {"question": QUESTION, "request_id": str(uuid.uuid4())}
            run_id = self._until("/v1/runs", asked)["run_id"]
            found: dict[str, Any] = {"status": ""}
            while found["status"] not in _ENDS:
                found = self._until(f"/v1/runs/{run_id}?wait=20s")
            self.ended.append(found["status"])
            if ANSWER not in json.dumps(found):
                self.wrong.append(json.dumps(found))

    def _until(self, path: str, body: dict[str, str] | None = None) -> Any:
        """The reply to a request, which is repeated until there is one."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        given = None if body is None else json.dumps(body).encode()
        while True:
            try:
                request = urllib.request.Request(self.url + path, given, headers)
                with urllib.request.urlopen(request, timeout=60) as reply:
                    return json.load(reply)
            except OSError:
                self.refused += 1
                time.sleep(_PAUSE_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    tools = os.environ.get("BOS_TEST_NODE_TOOLS")
    assert tools, "`make trial NAME=node` builds the programs and names their folder"
    docker = build.script("up", "DOCKER_HOST")
    assert docker, "no Docker engine answers, and none can be started"
    engine = build.Engine(docker)
    folder = Path(__file__).parent / "postgres"
    base = f"PYTHON_IMAGE={build.base(engine, docker)}"
    engine.run("build", "--quiet", "--build-arg", base, "--tag", POSTGRES, str(folder))
    # Sockets have short names.
    place = tmp_path_factory.mktemp("node")
    running = control_plane(Path(tools), place, simulated=False)
    with asyncio.Runner() as runner:
        plane = runner.run(running.__aenter__())
        try:
            joining = real_node(plane, docker)
            node = runner.run(joining.__aenter__())
            try:
                values = place / "values.yaml"
                values.write_text(yaml.safe_dump(_values()))
                found = Cluster(plane, node, values)
                begun = time.monotonic()
                node.load([POSTGRES, *_images()])
                found.seconds["images loaded"] = time.monotonic() - begun
                _prepare(plane, place)
                yield found
                print("".join(f"\n{what}: {took:.0f} s" for what, took in found.seconds.items()))
            finally:
                runner.run(joining.__aexit__(None, None, None))
        finally:
            runner.run(running.__aexit__(None, None, None))


def _images() -> list[str]:
    version = os.environ.get("BOS_VERSION") or "dev"
    return [
        each.tag(version) for each in build.images() if each.name.replace("-", "_") not in _LEFT_OUT
    ]


def _values() -> dict[str, Any]:
    """Profile minimal from our images, with two gateways, on a node of any size."""
    services = ("gateway", "documents", "sandbox", "code", "charts", "rest", "files", "web")
    return {
        "image": {"tag": os.environ.get("BOS_VERSION") or "dev", "pullPolicy": "Never"},
        "postgresql": {"bundled": {"enabled": True, "image": f"{POSTGRES}:latest"}},
        "blobs": {"volume": {"accessMode": "ReadWriteMany"}},
        "defaults": {"resources": _SMALL},
        "services": {
            **{name: {"resources": _SMALL} for name in services},
            "gateway": {"resources": _SMALL, "replicas": 2},
            "mcp_db": {"env": {"BOS_DATABASE_ALLOWED_TABLES": "regions"}},
            **{name: {"enabled": False} for name in _LEFT_OUT},
        },
        "test": {"question": QUESTION},
    }


def _prepare(plane: ControlPlane, folder: Path) -> None:
    """The namespace, volumes of the node, and the Secrets."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}}
    volumes = [_volume(folder, f"volume-{number}") for number in range(6)]
    plane.kubectl("create", "-f", "-", given=yaml.safe_dump_all([space, *volumes]))
    secrets = run("sh", str(CHART / "scripts/make-secrets.sh"))
    plane.kubectl("-n", SPACE, "create", "-f", "-", given=secrets)
    # A database to ask about, which may come later.
    url = "--from-literal=url=postgresql://reader:reader@bos-postgresql:5432/sales"
    plane.kubectl("-n", SPACE, "create", "secret", "generic", "bos-database", url)


def _volume(folder: Path, name: str) -> dict[str, Any]:
    place = folder / name
    place.mkdir()
    place.chmod(0o777)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "100Gi"},
            # On one node every pod reaches it.
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "local": {"path": str(place)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def test_upgraded_killed_and_rolled_back_under_load(cluster: Cluster) -> None:
    plane = cluster.plane
    chart = ("bos", str(CHART), "-f", str(CHART / "ci/minimal.yaml"), "-f", str(cluster.values))

    cluster.helm("install", "install", *chart, *_WAITING)
    cluster.helm("helm test", "test", "bos", "--timeout", "300s")

    path = "jsonpath={.data.static-keys}"
    keys = plane.kubectl("-n", SPACE, "get", "secret", "bos-keys", "-o", path)
    key = run("sh", "-c", f"echo {keys} | base64 -d").splitlines()[0].strip()
    with Load(f"http://{cluster.address('rest')}:8080", key) as load:
        load.more(5)
        before = {pod["metadata"]["name"] for pod in cluster.pods("gateway")}
        again = ("--set-string", "defaults.podAnnotations.trial=again")
        cluster.helm("upgrade under load", "upgrade", *chart, *again, *_WAITING)
        after = {pod["metadata"]["name"] for pod in cluster.pods("gateway")}
        assert len(after) == 2
        assert not before & after
        load.more(5)

        killed = sorted(after)[0]
        begun = time.monotonic()
        cluster.node.kill(plane, SPACE, killed)
        load.more(5)
        _until_restarted(cluster, killed)
        cluster.seconds["gateway killed, and ready again"] = time.monotonic() - begun

        cluster.helm("rollback under load", "rollback", "bos", "1", *_WAITING)
        load.more(5)
    print(f"\n{len(load.ended)} runs, {load.refused} requests repeated")
    assert set(load.ended) == {_SUCCEEDED}
    assert load.wrong == []
    cluster.helm("uninstall", "uninstall", "bos", "--wait", "--timeout", "300s")


def _until_restarted(cluster: Cluster, pod: str) -> None:
    while True:
        for each in cluster.pods("gateway"):
            (status,) = each["status"]["containerStatuses"]
            if each["metadata"]["name"] == pod and status["restartCount"] and status["ready"]:
                return
        time.sleep(_PAUSE_S)
