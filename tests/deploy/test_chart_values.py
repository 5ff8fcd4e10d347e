"""Values that the chart refuses, with a message that names the field; the question it asks."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from chart_rendering import CHART, Chart, RefusedValues, environment


@pytest.mark.parametrize(
    ("value", "field", "problem"),
    [
        ('services.gateway={"replica": 3}', "/services/gateway", "'replica'"),
        ('services.gateway={"replicas": "three"}', "/services/gateway/replicas", "integer"),
        ('services.Jira={"kind": "agent"}', "/services", "Jira"),
        (
            'services.gateway.image={"digest": "latest"}',
            "/services/gateway/image/digest",
            "pattern",
        ),
        ('services.gateway.resources={"limits": {"memory": "lots"}}', "limits/memory", "pattern"),
        ('services.sandbox.seccompProfile={"type": "Unconfined"}', "seccompProfile/type", "one of"),
        ('tls.mode="mesh"', "/tls/mode", "one of"),
        ('postgresql.password="x"', "/postgresql", "'password'"),
        ('services.sql.env={"log level": "debug"}', "/services/sql/env", "log level"),
        ("telemetry.sampleRatio=1.5", "/telemetry/sampleRatio", "maximum"),
        (
            'network.outside={"model": [{"ports": []}]}',
            "/network/outside/model/0/ports",
            "minItems",
        ),
    ],
)
def test_schema_names_the_field_that_is_wrong(
    chart: Chart, value: str, field: str, problem: str
) -> None:
    with pytest.raises(RefusedValues) as refused:
        chart.render("ha", value)
    assert field in str(refused.value)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('postgresql.host=""', "postgresql.host: must be set"),
        ('blobs.bucket=""', "blobs.bucket: must be set"),
        ('qdrant.url=""', "services.documents.replicas: must be 1 without qdrant.url"),
        (
            'blobs={"kind": "volume", "volume": {"accessMode": "ReadWriteOnce"}}',
            "replicas: must be 1 with blobs.volume.accessMode ReadWriteOnce",
        ),
        ("services.sandbox.enabled=false", "services.code.enabled: must be false"),
        ("services.mcp_db.enabled=false", "services.sql.enabled: must be false"),
        ("services.identity.enabled=false", "auth.issuer: must be the https URL"),
        ('env={"BOS_AUTH_STATIC_KEY": "abc"}', "env.BOS_AUTH_STATIC_KEY: holds a secret"),
        (
            'services.mcp_db.env={"BOS_DATABASE_URL": "postgresql://a:b@c/d"}',
            "services.mcp_db.env.BOS_DATABASE_URL: holds a secret; name it in secretEnv",
        ),
        ('ingress.host=""', "ingress.host: must be set"),
        ("gatewayApi.parents=[]", "gatewayApi.parents: must name a Gateway"),
        ("services.rest.autoscaling.max=1", "services.rest.autoscaling.min: must be at most"),
        ('services.sql.calls={"mcpdb": "BOS_SQL_MCP_URL"}', "services.sql.calls.mcpdb"),
        ('services.sql.outside=["moon"]', "services.sql.outside: there is no place moon"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_the_fix(
    chart: Chart, value: str, message: str
) -> None:
    with pytest.raises(RefusedValues) as refused:
        chart.render("ha", value)
    assert message in str(refused.value)


def test_issuer_of_others_takes_the_place_of_identity(chart: Chart) -> None:
    profile = chart.render(
        "ha", "services.identity.enabled=false", 'auth.issuer="https://sso.example.org"'
    )
    assert "identity" not in profile.services()
    gateway = environment(profile.services()["gateway"])
    assert gateway["BOS_AUTH_ISSUER"] == "https://sso.example.org"
    assert "BOS_AUTH_IDENTITY_TARGET" not in gateway


class _Rest(BaseHTTPRequestHandler):
    reply: tuple[int, object] = 200, {}
    asked: tuple[str, str, object] | None = None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked = self.path, self.headers["Authorization"], body
        code, answer = self.reply
        content = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _replying(code: int, answer: object) -> Iterator[tuple[str, type[_Rest]]]:
    handler = type("Replying", (_Rest,), {"reply": (code, answer)})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", handler
        finally:
            server.shutdown()
            thread.join()


def _ask(url: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "key").write_text("first key\nsecond key\n")
    command: list[Any] = [sys.executable, CHART / "scripts/ask.py", url, tmp_path / "key", "30"]
    return subprocess.run([*command, "What is 2 + 2?"], check=False, text=True, capture_output=True)


@pytest.mark.parametrize(
    ("code", "answer", "ended", "said"),
    [
        (200, {"status": "RUN_STATUS_SUCCEEDED", "answer": "4"}, 0, ""),
        (200, {"status": "RUN_STATUS_FAILED", "answer": ""}, 1, "RUN_STATUS_FAILED"),
        (401, {"error": {"message": "Sign in."}}, 1, "HTTP 401"),
    ],
)
def test_question_of_the_chart_fails_unless_it_is_answered(
    tmp_path: Path, code: int, answer: object, ended: int, said: str
) -> None:
    with _replying(code, answer) as (url, rest):
        result = _ask(url, tmp_path)
    assert rest.asked == ("/v1/runs:ask", "Bearer first key", {"question": "What is 2 + 2?"})
    assert result.returncode == ended
    assert said in result.stderr


def test_question_of_the_chart_fails_without_a_server(tmp_path: Path) -> None:
    with _replying(200, {}) as (url, _):
        pass
    result = _ask(url, tmp_path)
    assert result.returncode == 1
    assert "No answer from" in result.stderr
