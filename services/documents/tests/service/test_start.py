"""What a start of the service does not wait for."""

import subprocess
import sys

import pytest


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "loaded"),
    [("bos_documents.service", False), ("bos_documents.index.server", True)],
)
def test_client_of_a_server_is_loaded_only_where_there_is_one(module: str, loaded: bool) -> None:
    program = f"import sys, {module}; print('qdrant_client' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert said.stdout.strip() == str(loaded)
