"""Build the images of all services and print their sizes, or write the bill of materials of each.

    python deploy/images/build.py [--only gateway,sql] [--sbom FOLDER]

Without an engine it says so: an error in CI (the variable CI is set), and none elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
IMAGES = Path(__file__).parent
GATEWAY_MOST_MB = 150.0
"""What the gateway may add to its base."""
_NOT_IMAGES = {"standalone"}
_REST = "rest"
_TIMEOUT_S = 3600.0
_SHOWN = 8_000
"""How much of what a build said is shown if it fails, in characters."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image of ours."""

    name: str
    """Of its container and host: `api-docs`."""
    folder: str
    """Below services/: `agents/api_docs`."""

    def tag(self, version: str) -> str:
        """What the engine knows it as."""
        return f"{os.environ.get('BOS_IMAGES') or 'bos'}/{self.name}:{version}"


def images(root: Path = ROOT) -> list[Image]:
    """All images: one for each service, and for the REST gateway."""
    services = root / "services"
    files = [*services.glob("*/pyproject.toml"), *services.glob("agents/*/pyproject.toml")]
    folders = {file.parent.relative_to(services).as_posix() for file in files} - _NOT_IMAGES
    return [
        Image(folder.rpartition("/")[2].replace("_", "-"), folder)
        for folder in sorted({*folders, _REST})
    ]


def pins(root: Path = ROOT) -> dict[str, str]:
    """Images of others by variable, as pins.env holds them or the environment does."""
    lines = (root / "deploy/images/pins.env").read_text("utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name: os.environ.get(name) or value for name, value in pairs}


class Engine:
    """The Docker engine, by its client."""

    def __init__(self, host: str) -> None:
        self._client = "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
        self._environment = {**os.environ, "DOCKER_HOST": host, "DOCKER_BUILDKIT": "1"}

    def run(self, *arguments: str, check: bool = True, log: Path | None = None) -> str:
        """Standard output of a command of the client; its standard error goes to ``log``, if given.

        Raises:
            SystemExit: It failed and ``check`` is set; holds the end of ``log``.
        """
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") if log else nullcontext() as said:
            return self._run(arguments, check, said)

    def _run(self, arguments: Sequence[str], check: bool, said: IO[bytes] | None) -> str:
        ended = subprocess.run(
            (self._client, *arguments),
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if check and ended.returncode:
            last = Path(said.name).read_text("utf-8", "replace")[-_SHOWN:] if said else ""
            raise SystemExit(f"{last}\ndocker {arguments[0]} failed with {ended.returncode}")
        return ended.stdout

    def holds(self, image: str) -> bool:
        """Whether it has an image; one by digest that it does not have is no error."""
        return bool(self.run("images", "--quiet", "--no-trunc", image, check=False).strip())

    def size_mb(self, image: str) -> float:
        """Size of all layers of an image, in MB."""
        return int(self.run("image", "inspect", "--format", "{{.Size}}", image)) / 1e6

    def build(self, image: Image, base: str, version: str, *more: str) -> None:
        """Build one image, or another target of its Dockerfile."""
        dockerfile = "rest" if image.name == _REST else "python"
        certificates = os.environ.get("SSL_CERT_FILE")
        self.run(
            *("build", "--progress=plain", "-f", str(IMAGES / f"{dockerfile}.Dockerfile")),
            *("--build-arg", f"PYTHON_IMAGE={base}"),
            *(() if image.name == _REST else ("--build-arg", f"SERVICE={image.folder}")),
            *("--build-arg", f"VERSION={version}", "--build-arg", f"REVISION={_revision()}"),
            *(("--secret", f"id=ca,src={certificates}") if certificates else ()),
            *(("--network", os.environ["BUILD_NETWORK"]) if "BUILD_NETWORK" in os.environ else ()),
            *(more or ("--tag", image.tag(version))),
            ".",
            log=ROOT / f"build/images/{image.name}.log",
        )


def main(arguments: list[str]) -> int:
    """Build, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of images, separated by commas")
    parser.add_argument("--sbom", type=Path, help="folder for bills of materials")
    given = parser.parse_args(arguments)
    only = set(filter(None, given.only.split(",")))
    wanted = [each for each in images() if not only or each.name in only]
    if unknown := only - {each.name for each in wanted}:
        raise SystemExit(f"There is no image {', '.join(sorted(unknown))}")
    host = script("up", "DOCKER_HOST")
    if not host:
        print("images: not built, as no Docker engine answers and none can be started here.")
        return 1 if os.environ.get("CI") else 0
    engine = Engine(host)
    base_image = base(engine, host)
    version = os.environ.get("BOS_VERSION") or "dev"
    if given.sbom:
        return _bills(engine, wanted, base_image, version, given.sbom)
    print(f"Base: {base_image}, {engine.size_mb(base_image):.0f} MB")
    print(f"{'image':<14}{'MB':>8}{'without base':>14}{'built in s':>12}")
    started = time.monotonic()
    built = _built(engine, wanted, base_image, version)
    print(f"All of them in {time.monotonic() - started:.0f} s")
    if built.get("gateway", 0.0) > GATEWAY_MOST_MB:
        print(f"The gateway adds more than {GATEWAY_MOST_MB:.0f} MB to its base.", file=sys.stderr)
        return 1
    return 0


def _built(engine: Engine, wanted: list[Image], base: str, version: str) -> dict[str, float]:
    """Build the images, some at once, and print each; what each adds to the base, in MB."""
    own = engine.size_mb(base)

    def built(image: Image) -> tuple[str, float]:
        started = time.monotonic()
        engine.build(image, base, version)
        took = time.monotonic() - started
        size = engine.size_mb(image.tag(version))
        added = size if image.name == _REST else size - own
        print(f"{image.name:<14}{size:>8.0f}{added:>14.0f}{took:>12.0f}", flush=True)
        return image.name, added

    # The first makes the layers that all share.
    found = [built(image) for image in wanted[:1]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            found += pool.map(built, wanted[1:])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return dict(found)


def _bills(engine: Engine, wanted: list[Image], base: str, version: str, folder: Path) -> int:
    """Write the bill of materials of every Python image: what is installed in it."""
    for image in wanted:
        if image.name == _REST:
            continue  # its modules are in build/bos.cdx.json, which `make sbom` writes
        target = folder / image.name
        engine.build(image, base, version, "--target", "sbom", "--output", str(target))
        found = json.loads((target / "bom.cdx.json").read_text("utf-8"))["components"]
        print(f"{target}/bom.cdx.json: {len(found)} packages", flush=True)
    return 0


def base(engine: Engine, host: str) -> str:
    """Base of Python images: the pinned one, or, if there is none, one of Debian's packages."""
    pinned = pins()["PYTHON_IMAGE"]
    if engine.holds(pinned):
        return pinned
    engine.run("pull", "--quiet", pinned, check=False)
    if engine.holds(pinned):
        return pinned
    print(f"{pinned} cannot be had here; the base is made of Debian's packages.", file=sys.stderr)
    return script("base", "PYTHON_IMAGE", DOCKER_HOST=host) or pinned


def script(command: str, variable: str, **environment: str) -> str:
    """What engine.sh prints for a variable; empty if it fails."""
    ended = subprocess.run(
        (str(IMAGES / "engine.sh"), command),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    found = dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)
    return found.get(variable, "") if ended.returncode == 0 else ""


def _revision() -> str:
    """The commit that is built."""
    ended = subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return ended.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
