"""A real node on this machine: containerd, kubelet, kube-proxy and CoreDNS, as root on Debian.

Pods really run, one bridge joins them, services have addresses and names. Network policies are
accepted and not enforced: a bridge knows none.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from shutil import which

import yaml
from control_plane import ControlPlane, running

from bos_testkit.processes import free_port
from bos_testkit.waiting import eventually

NODE = "real-1"
_BRIDGE = "bos-node0"
_ADDRESS = "10.88.0.1"
_PODS, _SERVICES = "10.88.0.0/16", "10.96.0.0/16"
_PLUGINS = "/usr/lib/cni"
_COMMAND_S = 900
# Holds the namespaces of a pod, and reaps what it inherits.
_PAUSE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int s) { _exit(0); }
static void reap(int s) { while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
"""
_PAUSE_IMAGE = "docker.io/bos-trial/pause:1"


class Node:
    """The node, and the containers on it.

    Args:
        folder: Where it keeps its data and writes logs.
        docker: Address of the Docker engine that has the images.
    """

    def __init__(self, folder: Path, docker: str) -> None:
        self.folder = folder
        self._docker = docker
        self._ctr = ("ctr", "-a", str(folder / "containerd.sock"), "-n", "k8s.io")

    def containers(self, *arguments: str, check: bool = True) -> str:
        """Standard output of containerd's client."""
        return run(*self._ctr, *arguments, check=check)

    def load(self, images: Sequence[str]) -> None:
        """Take images of the Docker engine over."""
        docker = ("/usr/bin/docker", "--host", self._docker, "save", *images)
        with subprocess.Popen(docker, stdout=subprocess.PIPE) as saved:
            subprocess.run(
                (*self._ctr, "images", "import", "-"),
                stdin=saved.stdout,
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=_COMMAND_S,
            )
        assert saved.returncode == 0, f"docker save of {images} failed"

    def make_pause(self) -> None:
        """The image of what every pod begins with."""
        (self.folder / "pause.c").write_text(_PAUSE)
        run("gcc", "-O2", "-static", "-o", f"{self.folder}/pause", f"{self.folder}/pause.c")
        archive = subprocess.run(
            ("tar", "-C", str(self.folder), "-c", "pause"), capture_output=True, check=True
        ).stdout
        change = ("--change", 'ENTRYPOINT ["/pause"]')
        docker = ("/usr/bin/docker", "--host", self._docker, "import", *change, "-", _PAUSE_IMAGE)
        subprocess.run(docker, input=archive, stdout=subprocess.DEVNULL, check=True)
        self.load([_PAUSE_IMAGE])

    def kill(self, plane: ControlPlane, namespace: str, pod: str) -> None:
        """SIGKILL the processes of a pod's containers, as a lack of memory would."""
        found = json.loads(plane.kubectl("-n", namespace, "get", "pod", pod, "-o", "json"))
        for status in found["status"]["containerStatuses"]:
            container = status["containerID"].removeprefix("containerd://")
            self.containers("tasks", "kill", "-s", "SIGKILL", container)


def run(*arguments: str, check: bool = True) -> str:
    """Standard output of a program.

    Raises:
        AssertionError: It failed and ``check`` is set; holds what it wrote.
    """
    ended = subprocess.run(
        arguments, text=True, capture_output=True, check=False, timeout=_COMMAND_S
    )
    if check and ended.returncode:
        raise AssertionError(f"{' '.join(arguments)}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


@asynccontextmanager
async def real_node(plane: ControlPlane, docker: str) -> AsyncIterator[Node]:
    """Join a node to a control plane that simulates none; everything of it goes with the block."""
    folder = plane.folder / "node"
    for name in ("names", "root", "state", "kubelet", "certificates", "logs"):
        (folder / name).mkdir(parents=True)
    node = Node(folder, docker)
    async with AsyncExitStack() as stack:
        stack.callback(_unmount, folder)
        _make_bridge(folder)
        stack.callback(_remove_network)
        (folder / "containerd.toml").write_text(_containerd(folder))
        await stack.enter_async_context(
            running(_found("containerd"), folder, "--config", f"{folder}/containerd.toml")
        )
        stack.callback(_end_tasks, node)
        await eventually(lambda: bool(node.containers("version", check=False)), within_s=60)
        await asyncio.to_thread(node.make_pause)
        (folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(plane, folder)))
        own = (f"--kubeconfig={plane.kubeconfig}", f"--hostname-override={NODE}")
        await stack.enter_async_context(
            running(
                plane.tool("kubelet"),
                folder,
                *own,
                f"--config={folder / 'kubelet.yaml'}",
                f"--root-dir={folder / 'kubelet'}",
                f"--cert-dir={folder / 'certificates'}",
                f"--node-ip={_ADDRESS}",
            )
        )
        # Once it has ended: while it runs it makes anew what is taken away.
        stack.callback(run, str(plane.tool("kube-proxy")), "--cleanup", check=False)
        await stack.enter_async_context(
            running(
                plane.tool("kube-proxy"),
                folder,
                *own,
                "--proxy-mode=iptables",
                # Answers that would cross the bridge alone find their way back.
                "--masquerade-all",
                "--bind-address=127.0.0.1",
                f"--healthz-bind-address=127.0.0.1:{free_port()}",
                f"--metrics-bind-address=127.0.0.1:{free_port()}",
                "--conntrack-max-per-core=0",
            )
        )
        (folder / "Corefile").write_text(
            f".:53 {{\n bind {_ADDRESS}\n errors\n cache 5\n kubernetes cluster.local {{\n"
            f"  kubeconfig {plane.kubeconfig}\n }}\n}}\n"
        )
        await stack.enter_async_context(
            running(plane.tool("coredns"), folder, "-conf", str(folder / "Corefile"))
        )
        await eventually(lambda: _is_ready(plane), within_s=180)
        # While kubelet lives: it takes the pods' network down.
        stack.push_async_callback(_remove_pods, plane, node)
        yield node


def _is_ready(plane: ControlPlane) -> bool:
    condition = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return plane.tried("kubectl", "get", "node", NODE, "-o", condition).stdout == "True"


def _found(program: str) -> Path:
    path = which(program)
    assert path, f"{program} is not here: `make trial NAME=node` installs it on Debian as root"
    return Path(path)


def _containerd(folder: Path) -> str:
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    return f"""
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
{cri}]
  sandbox_image = "{_PAUSE_IMAGE}"
  stream_server_address = "127.0.0.1"
  # A machine may forbid what a pod of high priority asks for.
  restrict_oom_score_adj = true
{cri}.cni]
  bin_dir = "{_PLUGINS}"
  conf_dir = "{folder}/names"
"""


def _kubelet(plane: ControlPlane, folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plane.folder / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "address": _ADDRESS,
        "port": free_port(),
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,  # they would stay behind
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "podLogsDir": str(folder / "logs"),
        "clusterDNS": [_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        "serializeImagePulls": False,
        # Images come from here alone, so none may be deleted because this disk fills.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            **dict.fromkeys(("nodefs.available", "imagefs.available"), "1%"),
        },
    }


def _make_bridge(folder: Path) -> None:
    """The bridge of all pods, which is the node's address too."""
    run("ip", "link", "add", _BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{_ADDRESS}/16", "dev", _BRIDGE)
    run("ip", "link", "set", _BRIDGE, "up")
    run("ip", "route", "replace", _SERVICES, "dev", _BRIDGE)
    for way in ("-i", "-o"):
        run("iptables", "-I", "FORWARD", way, _BRIDGE, "-j", "ACCEPT")
    bridge = {
        "type": "bridge",
        "bridge": _BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(folder / "addresses"),
            "ranges": [[{"subnet": _PODS}]],
            "routes": [{"dst": _SERVICES}],
        },
    }
    plugins = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    (folder / "names/10-pods.conflist").write_text(json.dumps(plugins))


def _remove_network() -> None:
    run("ip", "link", "del", _BRIDGE, check=False)
    for way in ("-i", "-o"):
        run("iptables", "-D", "FORWARD", way, _BRIDGE, "-j", "ACCEPT", check=False)
    for chain in ("INPUT", "OUTPUT"):
        run("iptables", "-D", chain, "-j", "KUBE-FIREWALL", check=False)
    for table in ("mangle", "nat", "filter"):
        rules = run("iptables", "-t", table, "-S", check=False).splitlines()
        chains = [rule.split()[1] for rule in rules if rule.startswith("-N KUBE")]
        for action in ("-F", "-X"):
            for chain in chains:
                run("iptables", "-t", table, action, chain, check=False)


async def _remove_pods(plane: ControlPlane, node: Node) -> None:
    kinds = "deployment,statefulset,job,pod"
    arguments = ("delete", kinds, "--all", "-A", "--force", "--grace-period=0", "--timeout=60s")
    await asyncio.to_thread(plane.tried, "kubectl", *arguments)
    with suppress(TimeoutError):  # what is left is ended with containerd
        await eventually(lambda: not node.containers("containers", "ls", "-q"), within_s=60)


def _end_tasks(node: Node) -> None:
    for task in node.containers("tasks", "ls", "-q", check=False).split():
        node.containers("tasks", "rm", "-f", task, check=False)


def _unmount(folder: Path) -> None:
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((each for each in places if each.startswith(str(folder))), reverse=True):
        run("umount", "-l", place, check=False)
