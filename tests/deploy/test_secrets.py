"""secrets.sh makes what containers need, once, and readable by no other user."""

import re
import stat
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.fernet import Fernet

sys.path.insert(0, str(Path(__file__).parent))
from collections.abc import Mapping

from compose_files import Project

from bos_chassis.credentials.tls import callers
from bos_gateway.settings import GatewaySettings

pytestmark = pytest.mark.process


@pytest.fixture
def project(made_project: Project, tmp_path: Path) -> Project:
    """With secrets and settings that a test may change."""
    return made_project.copied(tmp_path)


def contents(project: Project) -> Mapping[str, bytes]:
    files = [each for folder in (project.secrets, project.env) for each in folder.rglob("*")]
    return {
        str(each.relative_to(project.folder)): each.read_bytes() for each in files if each.is_file()
    }


def test_other_users_cannot_read_the_files(project: Project) -> None:
    for folder in (project.secrets, project.env):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in project.env.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for file in (project.secrets / "own").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_second_time_changes_nothing_and_makes_what_is_missing(project: Project) -> None:
    before = contents(project)
    (project.env / "sql.env").write_text("# mine\n")
    (project.secrets / "rest/tls.crt").unlink()
    project.make_secrets()
    after = contents(project)
    changed = {name for name in before if before[name] != after[name]}
    own = "deploy/compose/"
    assert changed == {
        f"{own}env/sql.env",
        f"{own}secrets/rest/tls.crt",
        f"{own}secrets/rest/tls.key",
    }
    assert after[f"{own}env/sql.env"] == b"# mine\n"


def test_certificates_are_renewed_under_the_same_authority(project: Project) -> None:
    before = contents(project)
    project.make_secrets("certificates")
    after = contents(project)
    changed = {Path(name).name for name in before if before[name] != after[name]}
    assert changed == {"tls.crt", "tls.key"}
    assert before.keys() == after.keys()


def test_certificate_names_its_service_and_its_host(project: Project) -> None:
    authority = x509.load_pem_x509_certificate((project.secrets / "own/ca.crt").read_bytes())
    for service, host in (("mcp_db", "mcp-db"), ("gateway", "gateway")):
        shown = x509.load_pem_x509_certificate((project.secrets / host / "tls.crt").read_bytes())
        shown.verify_directly_issued_by(authority)
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        assert callers(uris, "bos") == {service}
        assert names.get_values_for_type(x509.DNSName) == [host, "localhost"]


def test_nothing_is_shared_that_should_not_be(project: Project) -> None:
    private = ("run-tokens.key", "signing.key", "session.keys", "ca.key", "superuser-password")
    for name in private:
        assert len([*project.secrets.rglob(name)]) == 1
    keys = [each.read_bytes() for each in project.secrets.rglob("tls.key")]
    assert len(set(keys)) == len(keys)
    passwords = [each.read_text() for each in project.secrets.glob("*/database-password")]
    assert len(set(passwords)) == len(passwords)


def test_keys_are_ones_that_services_accept(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value(file: str, name: str) -> str:
        text = (project.env / file).read_text("utf-8")
        (found,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
        return str(found)

    name = "BOS_GATEWAY_SECRETS_KEYS"
    monkeypatch.setenv(name, value("gateway.env", name))
    settings = GatewaySettings.load(
        store_url="postgresql://x/y", planner_target="p", composer_target="c", agent_targets={}
    )
    ring = settings.secrets_key_ring()
    assert ring is not None
    assert ring.ids == {"first"}
    Fernet(value("identity.env", "BOS_IDENTITY_KEY_ENCRYPTION_KEYS"))
    assert len(value("identity.env", "BOS_IDENTITY_BOOTSTRAP_TOKEN")) >= 32


def test_unknown_argument_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(Exception, match="exit status 2"):
        project.make_secrets("renew")
    assert not project.secrets.exists()
