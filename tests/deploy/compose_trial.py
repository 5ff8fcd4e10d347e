"""docker-compose.yml, profiles core and demo, from our own images; asked through REST.

Images of others are left out: PostgreSQL is Debian's package on the base of our images, and
documents are indexed by the embedded engine. `make trial NAME=compose` builds images and runs this.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "deploy/images"))
from collections.abc import Iterator

from compose_files import Project, agents_on_request, compose_file

import build
from bos_standalone.cli import DEMO_QUESTION
from bos_testkit.processes import free_port

pytestmark = pytest.mark.timeout(1800)

DEMO = "bos-compose-trial"
POSTGRES = "bos-trial/postgres"
CONTEXT = {"current_date": "2026-06-15", "current_datetime_utc": "2026-06-15T12:00:00+00:00"}
OVERRIDE = f"""
services:
  postgres: {{image: {POSTGRES}}}
  qdrant: {{profiles: !override [observability]}}
"""
PROFILES = ("--profile", "core", "--profile", "demo")
OURS = sorted(
    name
    for name, each in compose_file()["services"].items()
    if each["image"].startswith("${BOS_IMAGES") and name not in agents_on_request()
)


def engine() -> tuple[build.Engine, str]:
    """The Docker engine and its address; build.py has started one where none was."""
    address = build.script("up", "DOCKER_HOST")
    if not address and not os.environ.get("CI"):
        pytest.exit("compose-test: not run, as there is no Docker engine.", returncode=0)
    assert address, "no Docker engine answers, and none can be started"
    return build.Engine(address), address


class Bos:
    """Bos as it runs in containers."""

    def __init__(self, project: Project, port: int, up_s: float) -> None:
        self._project = project
        self._port = port
        self.up_s = up_s
        self.key = (project.secrets / "own/api-keys").read_text().strip()

    def docker(self, *arguments: str) -> str:
        """Standard output of Docker's client."""
        client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
        return self._project.run(client, *arguments)

    def inside(self, service: str, program: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program in the container of a service."""
        client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
        return subprocess.run(
            (client, "exec", f"{DEMO}-{service}-1", "python", "-c", program),
            env=self._project.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def post(self, path: str, body: dict[str, Any], key: str | None = None) -> Any:
        """The JSON that REST answers to who presents ``key``, by default the right one."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {key or self.key}",
            },
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def bos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bos]:
    docker, address = engine()
    base = build.base(docker, address)
    folder = Path(__file__).parent / "postgres"
    docker.run(
        *("build", "--quiet", "--build-arg", f"PYTHON_IMAGE={base}", "--tag", POSTGRES),
        str(folder),
    )
    port = free_port()
    project = Project(
        tmp_path_factory.mktemp("bos"),
        DOCKER_HOST=address,
        COMPOSE_PROJECT_NAME=DEMO,
        BOS_REST_PORT=str(port),
        BOS_GATEWAY_PORT=str(free_port()),
        BOS_VERSION=os.environ.get("BOS_VERSION", "dev"),
        BOS_IMAGES=os.environ.get("BOS_IMAGES", "bos"),
    )
    project.make_secrets()
    (project.env / "documents.env").write_text("# no Qdrant here\n")
    override = project.folder / "override.yml"
    override.write_text(OVERRIDE)
    files = ("-f", "docker-compose.yml", "-f", str(override), *PROFILES)
    started = time.monotonic()
    try:
        project.compose(*files, "up", "--wait", "--wait-timeout", "600", "--no-build")
        yield Bos(project, port, time.monotonic() - started)
    except BaseException:
        print(project.compose(*files, "ps", "--all"))
        print(project.compose(*files, "logs", "--tail", "20"))
        raise
    finally:
        project.compose(*files, "down", "--volumes", "--timeout", "20")


@pytest.mark.requirement("S-15")
def test_question_of_the_readme_is_answered_through_rest(
    bos: Bos, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    response = bos.post("/v1/runs:ask", {"question": DEMO_QUESTION, "context": CONTEXT})
    took = time.monotonic() - started
    with capsys.disabled():
        print(f"\nall healthy after {bos.up_s:.0f} s; answered in {took:.1f} s:")
        print(response["answer"])
        usage = bos.docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}")
        print("\n".join(sorted(line.removeprefix(f"{DEMO}-") for line in usage.splitlines())))
    assert response["status"] == "RUN_STATUS_SUCCEEDED"
    assert "22.84" in response["answer"]
    assert "Mahanadi Mechanical Erectors" in response["answer"]


def test_question_is_refused_without_the_key(bos: Bos) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        bos.post("/v1/runs:ask", {"question": DEMO_QUESTION}, key="not-a-key-of-any-user")
    with refused.value:
        assert refused.value.code == 401


@pytest.mark.parametrize("service", OURS)
def test_container_has_no_root_no_privilege_no_writable_disk(bos: Bos, service: str) -> None:
    (container,) = json.loads(bos.docker("inspect", f"{DEMO}-{service}-1"))
    assert container["Config"]["User"] == "65532:65532"
    assert container["HostConfig"]["ReadonlyRootfs"] is True
    assert container["State"]["Health"]["Status"] == "healthy"
    assert container["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    if service == "rest":
        return  # there is no other program in it
    tried = bos.inside(
        service,
        "import os, re\n"
        "status = open('/proc/self/status').read()\n"
        "assert os.getuid() == 65532\n"
        "assert int(re.search(r'CapEff:\\s*(\\w+)', status)[1], 16) == 0\n"
        "assert re.search(r'NoNewPrivs:\\s*1', status)\n"
        "for path in ('/opt/bos/x', '/x', '/etc/x'):\n"
        "    try:\n"
        "        open(path, 'w')\n"
        "    except OSError:\n"
        "        continue\n"
        "    raise SystemExit(path)\n"
        "open('/tmp/x', 'w').close()\n",
    )
    assert tried.returncode == 0, tried.stderr


@pytest.mark.parametrize("service", sorted({*OURS} - {"rest"}))
def test_image_has_no_compiler_and_nothing_that_installs(bos: Bos, service: str) -> None:
    tried = bos.inside(
        service,
        "import importlib.util, shutil\n"
        "found = [n for n in ('cc', 'gcc', 'g++', 'clang', 'go', 'rustc', 'pip', 'uv')"
        " if shutil.which(n)]\n"
        "found += [n for n in ('pip', 'uv', 'ensurepip', 'setuptools')"
        " if importlib.util.find_spec(n)]\n"
        "raise SystemExit(', '.join(found) or 0)\n",
    )
    assert tried.returncode == 0, tried.stderr


def test_sandbox_reaches_nothing_outside_and_no_store(bos: Bos) -> None:
    # All at once: the name service takes its time over names that are not of this network.
    tried = bos.inside(
        "sandbox",
        "import socket\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def reached(place):\n"
        "    try:\n"
        "        socket.create_connection(place, 3).close()\n"
        "    except OSError:\n"
        "        return None\n"
        "    return place[0]\n"
        "places = [('gateway', 8080), ('postgres', 5432), ('planner', 8080), ('1.1.1.1', 53)]\n"
        "with ThreadPoolExecutor() as pool:\n"
        "    print(*filter(None, pool.map(reached, places)))\n",
    )
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.split() == ["gateway"]


def test_runs_outlive_their_containers(bos: Bos) -> None:
    asked = bos.post(
        "/v1/runs:ask",
        {"question": "How many days are there between 17 January 2026 and 15 June 2026?"},
    )
    run_id = asked["run_id"]
    bos.docker("restart", f"{DEMO}-gateway-1")
    request = urllib.request.Request(
        f"http://127.0.0.1:{bos._port}/v1/runs/{run_id}?wait=30s",
        headers={"Authorization": f"Bearer {bos.key}"},
    )
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                found = json.load(response)
            break
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > deadline:
                raise
            bos.docker("inspect", f"{DEMO}-gateway-1")
    assert re.search(r"149", json.dumps(found))
