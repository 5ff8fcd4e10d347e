"""`make trial NAME=model`: what it says where there is no model, and what it builds and sets."""

import os
import re
import subprocess
import sys
from pathlib import Path

from .bos_try.servers import slow_settings

HERE = Path(__file__).parent
_SETTINGS = re.compile(r"BOS_|OPENAI_|AZURE_|OTEL_|.*_MODEL|.*_TEMPERATURE")


def try_model(*arguments: str, working: Path) -> subprocess.CompletedProcess[str]:
    """The command as make starts it, without the developer's settings."""
    kept = {name: value for name, value in os.environ.items() if not _SETTINGS.match(name)}
    output = ("--output", str(working / "tried.json"))
    return subprocess.run(
        [sys.executable, str(HERE / "try_model.py"), *arguments, *output],
        env=kept,
        cwd=working,
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_without_a_model_it_says_what_to_set(tmp_path: Path) -> None:
    done = try_model(working=tmp_path)
    assert done.returncode == 2
    assert "OPENAI_BASE_URL and BOS_MODEL" in done.stderr
    assert "MODEL=llama" in done.stderr


def test_a_package_that_is_not_what_it_was_is_not_built(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, says in {
        "uname": "echo Linux x86_64",
        "npm": "",
        "git": "",
        "g++": "",
        "gcc": "",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{says}\n")
        (tools / name).chmod(0o755)
    package = tmp_path / "home" / "node-llama-cpp-linux-x64-3.22.1.tgz"
    package.parent.mkdir()
    package.write_bytes(b"something else")

    done = subprocess.run(
        [str(HERE / "llama.sh"), "build"],
        env=os.environ
        | {"PATH": f"{tools}:{os.environ['PATH']}", "LLAMA_HOME": str(package.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "is not the one this was written for" in done.stderr
    assert not package.exists()


def test_own_server_is_not_built(tmp_path: Path) -> None:
    own = {"LLAMA_SERVER": "/opt/llama-server", "LLAMA_MODEL": "/opt/model.gguf"}
    done = subprocess.run(
        [str(HERE / "llama.sh"), "build"],
        env=os.environ | own | {"LLAMA_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "/opt/llama-server /opt/model.gguf\n"
    assert not (tmp_path / "home").exists()


def test_slow_models_are_given_the_times_that_the_docs_tell_people() -> None:
    settings = slow_settings()
    report = (HERE.parents[2] / "docs/models.md").read_text()

    assert settings["BOS_MODEL_TIER"] == "small"
    times = {name: value for name, value in settings.items() if name.endswith("_S")}
    assert float(times["BOS_SQL_STEP_TIMEOUT_S"]) >= 300
    assert all(f"\n{name}={value}\n" in report for name, value in times.items())
