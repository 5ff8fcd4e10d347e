"""``bos doctor`` where services speak TLS: expired, expiring and foreign certificates."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from gateway_harness.harness import ComposerDouble, PlannerDouble, serve_double

from bos_chassis.settings import TlsSettings
from bos_cli.main import main
from bos_testkit.certificates import Authority

pytestmark = pytest.mark.security

_FILES = ("cert_file", "key_file", "ca_file")
_SERVED = {"planner": PlannerDouble, "composer": ComposerDouble}


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.chdir(tmp_path)
    return Authority(tmp_path / "authority")


@asynccontextmanager
async def served(**shown: TlsSettings | None) -> AsyncIterator[dict[str, str]]:
    """Planner and composer with these certificates; yields the gateway's settings for them."""
    async with AsyncExitStack() as stack:
        given = {
            f"BOS_GATEWAY_{name.upper()}_TARGET": await serve_double(
                stack, double(), tls=shown[name]
            )
            for name, double in _SERVED.items()
        }
        yield {
            **given,
            "BOS_GATEWAY_STORE_URL": "postgresql://bos@127.0.0.1:1/nothing",
            "BOS_GATEWAY_AGENT_TARGETS": "echo=127.0.0.1:1",
        }


async def findings(env: dict[str, str], tls: TlsSettings) -> dict[str, list[str]]:
    """What `bos doctor` says with these certificates, by check: level, text and advice."""
    files = {f"BOS_TLS_{name.upper()}": str(getattr(tls, name)) for name in _FILES}
    done = await asyncio.to_thread(
        CliRunner().invoke, main, ("doctor", "--json"), env={**env, **files}
    )
    found: dict[str, list[str]] = {}
    for each in json.loads(done.stdout)["findings"]:
        line = f"{each['level']}: {each['text']} -> {each['advice']}"
        found.setdefault(each["check"], []).append(line)
    return found


async def test_all_is_well_with_certificates_of_one_authority(authority: Authority) -> None:
    shown = {name: authority.issue(name) for name in _SERVED}
    async with served(**shown) as env:
        found = await findings(env, authority.issue("gateway"))
    assert found["certificates"] == ["ok: the gateway's certificate expires in 23 hours -> "]
    for service in ("planner", "composer"):
        assert found[service][0] == "ok: its certificate expires in 23 hours -> "
        assert "is serving" in found[service][1]
        assert not any(line.startswith("problem") for line in found[service])


async def test_doctor_reports_expired_and_foreign_own_certificates(
    authority: Authority, tmp_path: Path
) -> None:
    shown = {name: authority.issue(name) for name in _SERVED}
    soon = timedelta(hours=5)
    async with served(**shown) as env:
        over = await findings(env, authority.issue("gateway", expired=True))
        ending = await findings(env, authority.issue("gateway", left=soon))
        other = await findings(env, authority.issue("gateway", named="planner"))
        good = authority.issue("gateway")
        without = good.model_copy(update={"ca_file": tmp_path / "missing.pem"})
        missing = await findings(env, without)
    assert "problem: the gateway's certificate has expired" in over["certificates"][0]
    assert "warning: the gateway's certificate expires in 4 hours" in ending["certificates"][0]
    assert "problem: the certificate of gateway names planner" in other["certificates"][1]
    assert "spiffe://bos/gateway" in other["certificates"][1]
    assert "BOS_TLS_CA_FILE" in missing["certificates"][0]
    assert missing["certificates"][0].startswith("problem")


async def test_doctor_reports_invalid_certificates_of_services(
    authority: Authority, tmp_path: Path
) -> None:
    over = authority.issue("planner", expired=True)
    foreign = Authority(tmp_path / "other").issue("composer")
    async with served(planner=over, composer=foreign) as env:
        found = await findings(env, authority.issue("gateway"))
    assert "certificate has expired" in found["planner"][0]
    assert "Have a new one issued" in found["planner"][0]
    assert "BOS_TLS_CA_FILE" in found["composer"][0]
    misnamed = authority.issue("planner", named="composer")
    async with served(planner=misnamed, composer=None) as env:
        found = await findings(env, authority.issue("gateway"))
    assert any("the certificate of planner names composer" in line for line in found["planner"])
    assert "does not speak TLS" in found["composer"][0]
    assert all(line.startswith("problem") for line in found["composer"])
