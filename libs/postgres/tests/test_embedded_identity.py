import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from bos_errors import ConfigurationError
from bos_postgres import EmbeddedPostgres, connect, embedded
from bos_postgres._identity import Identity, RunAs, choose_identity
from bos_postgres._installation import find_installation

pytestmark = pytest.mark.postgres

NOBODY = 65534
WAIT_S = 60


def script(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(source), *arguments]


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def unprivileged(command: list[str], uid: int) -> list[str]:
    """The command as an ordinary user, where we are root.

    The interpreter may live in a home folder that only root can read; then the user keeps the one
    capability of reading such folders.
    """
    if os.geteuid() != 0:
        return command
    setpriv = shutil.which("setpriv")
    who = [setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    places = (Path(sys.executable).resolve(), Path(sys.prefix), Path(__file__))
    if not all(_open_to_all(place) for place in places):
        who += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [*who, "--", *command]


def namespaces_work() -> bool:
    source = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
    return subprocess.run(script(source), check=False, stdin=subprocess.DEVNULL).returncode == 0


ROOT = os.geteuid() == 0
ROOT_WAYS: tuple[RunAs, ...] = ("nobody", "user_namespace") if namespaces_work() else ("nobody",)
WAYS: tuple[RunAs, ...] = ROOT_WAYS if ROOT else ("self",)
OTHER_OWNER = {"nobody": "nobody"}

SCENARIO = """
    import asyncio, os, sys
    from pathlib import Path
    from bos_postgres import EmbeddedPostgres, connect

    async def main():
        for _ in range(2):
            async with EmbeddedPostgres(Path(sys.argv[1])) as server:
                async with connect(server.dsn()) as connection:
                    await connection.execute("CREATE TABLE IF NOT EXISTS kept ()")
                print(os.geteuid(), os.stat(f"/proc/{server.pid}").st_uid)

    asyncio.run(main())
"""


@pytest.fixture
def private_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of mode 0700, as a checkout below /root is."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    yield folder
    for data in folder.glob("*/lock"):
        EmbeddedPostgres(data.parent).delete_data()


@pytest.mark.parametrize("way", WAYS)
async def test_programs_and_data_in_a_private_folder_are_no_obstacle(
    way: RunAs, private_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = find_installation().copy_to(private_folder / "site")
    monkeypatch.setattr(embedded, "find_installation", lambda: installation)
    for _ in range(2):
        async with (
            EmbeddedPostgres(private_folder / "data", run_as=way, port=0) as server,
            connect(server.tcp_dsn()) as connection,
        ):
            await connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS answer")
            assert await connection.fetchval("SELECT answer FROM kept") == 42
            owner = pwd.getpwuid(os.stat(f"/proc/{server.pid}").st_uid).pw_name
            assert owner == OTHER_OWNER.get(way, pwd.getpwuid(os.geteuid()).pw_name)
    assert os.stat(private_folder).st_mode & 0o777 == 0o700


async def test_data_survive_a_change_of_identity(private_folder: Path) -> None:
    folder = private_folder / "data"
    async with (
        EmbeddedPostgres(folder) as server,
        connect(server.dsn()) as connection,
    ):
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    for way in (*WAYS, *reversed(WAYS)):
        async with (
            EmbeddedPostgres(folder, run_as=way) as server,
            connect(server.dsn()) as connection,
        ):
            assert await connection.fetchval("SELECT answer FROM kept") == 42


async def test_deleting_removes_data_that_moved_elsewhere(private_folder: Path) -> None:
    server = EmbeddedPostgres(private_folder / "data", run_as=WAYS[0])
    async with server:
        home = server._home
    server.delete_data()
    assert not home.exists()
    assert not (private_folder / "data").exists()


def test_an_ordinary_user_runs_it_as_themselves() -> None:
    folder = Path(tempfile.mkdtemp(prefix="bos-test-"))
    try:
        uid = NOBODY if ROOT else os.geteuid()
        if ROOT:
            os.chown(folder, uid, uid)
        done = subprocess.run(
            unprivileged(script(SCENARIO, str(folder)), uid),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            cwd="/",
        )
        assert done.stdout.split() == [str(uid)] * 4, done.stderr
    finally:
        shutil.rmtree(folder)


def pretend(monkeypatch: pytest.MonkeyPatch, *, uid: int, names: dict[int, str]) -> None:
    def getpwuid(wanted: int) -> pwd.struct_passwd:
        entry = (names[wanted], "x", wanted, wanted, "", "/", "/bin/false")
        return pwd.struct_passwd(entry)

    def getpwnam(name: str) -> pwd.struct_passwd:
        return getpwuid(next((uid for uid, known in names.items() if known == name), -1))

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    monkeypatch.setattr(pwd, "getpwnam", getpwnam)


@pytest.mark.parametrize(
    ("uid", "names", "namespaces", "kind"),
    [
        (1000, {1000: "ada"}, False, "self"),
        (1234, {65534: "nobody"}, True, "user_namespace"),
        (0, {0: "root", 65534: "nobody"}, True, "user_namespace"),
        (0, {0: "root", 65534: "nobody"}, False, "nobody"),
    ],
)
def test_the_least_intrusive_identity_is_chosen(
    monkeypatch: pytest.MonkeyPatch, uid: int, names: dict[int, str], namespaces: bool, kind: str
) -> None:
    pretend(monkeypatch, uid=uid, names=names)
    chosen = choose_identity("auto", lambda _: namespaces)
    assert chosen.kind == kind
    assert chosen.uid != 0


@pytest.mark.parametrize(
    ("uid", "names", "why"),
    [
        (1234, {65534: "nobody"}, "no entry in /etc/passwd and user namespaces are blocked"),
        (0, {0: "root"}, "needs a user called nobody"),
    ],
)
def test_where_no_identity_works_the_fix_is_named(
    monkeypatch: pytest.MonkeyPatch, uid: int, names: dict[int, str], why: str
) -> None:
    pretend(monkeypatch, uid=uid, names=names)
    with pytest.raises(ConfigurationError, match=why):
        choose_identity("auto", lambda _: False)


def test_files_stay_ours_unless_server_really_is_another_user() -> None:
    assert Identity("user_namespace", 65534, 65534).file_owner == (os.geteuid(), os.getegid())
    assert Identity("nobody", 65534, 65534).file_owner == (65534, 65534)
