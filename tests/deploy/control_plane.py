"""A control plane of Kubernetes on loopback: etcd, API server, controllers, scheduler, kwok.

Everything that decides about objects is real: validation, Pod Security, RBAC, volumes, rollouts,
disruption budgets, Jobs. Nodes are simulated by kwok: their pods are ready at once and run nothing.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from secrets import token_hex

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bos_testkit.processes import free_port
from bos_testkit.waiting import eventually

_COMMAND_S = 240
_LONGEST_S = 1200
_HOST = "127.0.0.1"
_ZONES = ("a", "b", "c")
_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "status": {
        part: {"cpu": "32", "memory": "128Gi", "pods": "250", "ephemeral-storage": "200Gi"}
        for part in ("allocatable", "capacity")
    },
}


class ControlPlane:
    """A running control plane, and the clients that speak to it.

    Args:
        tools: Folder of the programs.
        folder: Of this control plane alone.
    """

    def __init__(self, tools: Path, folder: Path) -> None:
        self._tools = tools
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"

    def tool(self, name: str) -> Path:
        """Where a program is."""
        return self._tools / name

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Standard output of kubectl.

        Raises:
            AssertionError: It failed; holds what it wrote.
        """
        return self.tried("kubectl", *arguments, given=given, check=True).stdout

    def helm(self, *arguments: str) -> str:
        """Standard output of helm.

        Raises:
            AssertionError: It failed; holds what it wrote.
        """
        return self.tried("helm", *arguments, check=True).stdout

    def tried(
        self, tool: str, *arguments: str, given: str = "", check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """How a client ended."""
        ended = subprocess.run(
            (self._tools / tool, *arguments),
            input=given,
            env={
                "PATH": str(self._tools),
                "HOME": str(self.folder),
                "KUBECONFIG": str(self.kubeconfig),
                "HELM_CACHE_HOME": str(self.folder / "helm"),
                "HELM_CONFIG_HOME": str(self.folder / "helm"),
                "HELM_DATA_HOME": str(self.folder / "helm"),
            },
            text=True,
            capture_output=True,
            check=False,
            timeout=_LONGEST_S,
        )
        if check and ended.returncode:
            raise AssertionError(f"{tool} {' '.join(arguments)}\n{ended.stdout}{ended.stderr}")
        return ended

    def objects(self, namespace: str, *kinds: str) -> list[str]:
        """Names of the objects of these kinds, as kind/name."""
        return self.kubectl("-n", namespace, "get", ",".join(kinds), "-o", "name").split()


@asynccontextmanager
async def control_plane(
    tools: Path, folder: Path, *, simulated: bool = True
) -> AsyncIterator[ControlPlane]:
    """Start a control plane with three nodes, and stop it with the block.

    Args:
        tools: Folder of the programs, as ``tools.sh all`` prints it.
        folder: Where it keeps its data and writes logs; one for each control plane.
        simulated: Whether it has nodes, in name alone; else none has come yet.
    """
    plane = ControlPlane(tools, folder)
    token, ports = token_hex(16), {name: free_port() for name in ("etcd", "peer", "api")}
    _write_keys(folder)
    (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    plane.kubeconfig.write_text(_kubeconfig(folder, ports["api"], token))
    async with AsyncExitStack() as stack:

        async def start(name: str, *arguments: str) -> None:
            await stack.enter_async_context(running(tools / name, folder, *arguments))

        await start("etcd", *_etcd(folder, ports))
        await start("kube-apiserver", *_api_server(folder, ports))
        await _answers(plane, "get", "--raw", "/readyz")
        as_admin = [
            f"--{flag}={plane.kubeconfig}"
            for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        ]
        alone = ["--leader-elect=false", f"--bind-address={_HOST}"]
        await start(
            "kube-controller-manager",
            *as_admin,
            *alone,
            f"--secure-port={free_port()}",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={folder / 'ca.crt'}",
            f"--cert-dir={folder / 'controllers'}",
            "--use-service-account-credentials",
        )
        await start(
            "kube-scheduler",
            *as_admin,
            *alone,
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / 'scheduler'}",
        )
        if simulated:
            await start(
                "kwok",
                f"--kubeconfig={plane.kubeconfig}",
                "--manage-all-nodes=true",
                "--node-ip=10.0.0.1",
                "--cidr=10.0.0.1/24",
                "--node-lease-duration-seconds=40",
                f"--server-address={_HOST}:{free_port()}",
                *(f"--config={file}" for file in _stages(tools)),
            )
            for zone in _ZONES:
                plane.kubectl("apply", "-f", "-", given=yaml.safe_dump(_node(zone)))
            for file in sorted((tools / "stages").glob("storage-class*.yaml")):
                plane.kubectl("apply", "-f", str(file))
            plane.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
        await _answers(plane, "-n", "default", "get", "serviceaccount", "default")
        yield plane


@asynccontextmanager
async def running(program: Path, folder: Path, *arguments: str) -> AsyncIterator[None]:
    """Run a program in ``folder`` for the block; it logs to a file of its name."""
    with (folder / f"{program.name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, cwd=folder, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _answers(plane: ControlPlane, *arguments: str) -> None:
    await eventually(
        lambda: plane.tried("kubectl", *arguments).returncode == 0, within_s=_COMMAND_S
    )


def _stages(tools: Path) -> list[Path]:
    files = sorted((tools / "stages").glob("*.yaml"))
    return [file for file in files if not file.name.startswith("storage-class")]


def _node(zone: str) -> dict[str, object]:
    labels = {
        "kubernetes.io/hostname": f"node-{zone}",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": zone,
    }
    return {**_NODE, "metadata": {"name": f"node-{zone}", "labels": labels}}


def _etcd(folder: Path, ports: dict[str, int]) -> list[str]:
    client, peer = (f"http://{_HOST}:{ports[name]}" for name in ("etcd", "peer"))
    return [
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def _api_server(folder: Path, ports: dict[str, int]) -> list[str]:
    return [
        f"--etcd-servers=http://{_HOST}:{ports['etcd']}",
        f"--bind-address={_HOST}",
        f"--advertise-address={_HOST}",
        f"--secure-port={ports['api']}",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.key'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        f"--tls-cert-file={folder / 'api.crt'}",
        f"--tls-private-key-file={folder / 'api.key'}",
    ]


def _kubeconfig(folder: Path, port: int, token: str) -> str:
    server = {"server": f"https://{_HOST}:{port}", "certificate-authority": str(folder / "ca.crt")}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }
    )


def _write_keys(folder: Path) -> None:
    """An authority, the API server's certificate, and the key that signs tokens of accounts."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    _write_key(folder / "accounts.key", ec.generate_private_key(ec.SECP256R1()))
    _write_key(folder / "api.key", server)
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "control plane of tests")])
    now = datetime.now(UTC)

    def signed(
        subject: x509.Name, key: ec.EllipticCurvePublicKey, what: x509.ExtensionType
    ) -> bytes:
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(own)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(what, critical=False)
            .sign(authority, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    ca = x509.BasicConstraints(ca=True, path_length=None)
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(IPv4Address(_HOST)), x509.DNSName("kubernetes.default.svc")]
    )
    (folder / "ca.crt").write_bytes(signed(own, authority.public_key(), ca))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    (folder / "api.crt").write_bytes(signed(subject, server.public_key(), names))


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
