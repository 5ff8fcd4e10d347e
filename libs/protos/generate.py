"""Build the Python package of messages and stubs from the top-level ``protos/`` folder.

One function serves both ways in: the hatchling build hook (installing the package) and
``make protos`` (a developer changed a ``.proto``). Nothing is downloaded: the third-party schemas
come from installed wheels (``googleapis-common-protos`` and ``protovalidate``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE / "src"


def proto_root() -> Path:
    """The folder with the schemas: beside ``libs/`` in a checkout, inside an sdist otherwise."""
    for candidate in (HERE.parent.parent / "protos", HERE / "protos"):
        if (candidate / "bos").is_dir():
            return candidate
    raise FileNotFoundError("no protos/ folder found beside libs/ or inside the source package")


def write_validate_descriptor(target: Path) -> None:
    """Write ``buf/validate/validate.proto`` and what it imports as a descriptor set.

    The protovalidate wheel carries its schema as generated code only, but a message of its public
    interface, the violation, knows the file it comes from.
    """
    from google.protobuf import (
        descriptor_pb2,
        duration_pb2,
        field_mask_pb2,
        timestamp_pb2,
    )
    from protovalidate import ViolationPb

    files = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.add().ParseFromString(ViolationPb.desc().file.proto.to_binary())
    target.write_bytes(files.SerializeToString())


def include_paths(root: Path) -> list[str]:
    """Import roots for protoc: ours, the well-known types, and the googleapis wheel."""
    annotations = find_spec("google.api.annotations_pb2")
    tools = find_spec("grpc_tools")
    if annotations is None or annotations.origin is None or tools is None or tools.origin is None:
        raise SystemExit("googleapis-common-protos and grpcio-tools must be installed")
    google = Path(annotations.origin).parents[2]
    well_known = Path(tools.origin).parent / "_proto"
    return [f"--proto_path={path}" for path in (root, well_known, google)]


def protoc(*arguments: str) -> None:
    """Run protoc with the plugins installed beside this interpreter.

    Raises:
        SystemExit: protoc reported an error (its message is on stderr).
    """
    scripts = Path(sysconfig.get_path("scripts"))
    plugin = shutil.which("protoc-gen-mypy_grpc", path=str(scripts)) or shutil.which(
        "protoc-gen-mypy_grpc"
    )
    command = [sys.executable, "-m", "grpc_tools.protoc"]
    if plugin:
        command.append(f"--plugin=protoc-gen-mypy_grpc={plugin}")
    done = subprocess.run([*command, *arguments], check=False)
    if done.returncode:
        raise SystemExit(f"protoc failed with exit code {done.returncode}")


def write_package_inits(output: Path) -> None:
    """Re-export each package's messages and stubs, so callers never import ``_pb2`` modules."""
    for folder in sorted({path.parent for path in (output / "bos").rglob("*_pb2.py")}):
        modules = [*sorted(folder.glob("*_pb2.py")), *sorted(folder.glob("*_pb2_grpc.py"))]
        imports = [f"from .{module.stem} import *" for module in modules]
        lines = ['"""Generated: messages and stubs of this package."""', "", *imports]
        text = "\n".join(lines) + "\n"
        (folder / "__init__.py").write_text(text, encoding="utf-8")
        (folder / "py.typed").touch()


def generate(output: Path = SOURCE, build: Path = HERE / "build") -> None:
    """Regenerate everything under ``output``; stale files of removed schemas disappear.

    Raises:
        SystemExit: a schema does not compile.
    """
    root = proto_root()
    build.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    validate = build / "validate.binpb"
    write_validate_descriptor(validate)
    ours = sorted(str(path.relative_to(root)) for path in (root / "bos").rglob("*.proto"))
    services = [name for name in ours if name.endswith("_service.proto")]
    common = [*include_paths(root), f"--descriptor_set_in={validate}"]
    out = f"{output}"
    protoc(*common, f"--python_out={out}", f"--pyi_out={out}", "buf/validate/validate.proto", *ours)
    protoc(*common, f"--grpc_python_out={out}", f"--mypy_grpc_out={out}", *services)
    protoc(
        *common,
        "--include_imports",
        "--include_source_info",
        f"--descriptor_set_out={build / 'image.binpb'}",
        *ours,
    )
    write_package_inits(output)


if __name__ == "__main__":
    generate()
