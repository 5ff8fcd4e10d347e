"""A PostgreSQL server of our own, from a wheel, for one machine and one owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from bos_errors import ConfigurationError, Unavailable
from bos_postgres._data_folder import (
    clear_stale_pid,
    free_port,
    give,
    give_up_lock,
    postmaster_pid,
    ready,
    rotate,
    take_lock,
)
from bos_postgres._identity import Identity, RunAs, choose_identity
from bos_postgres._installation import Installation, find_installation
from bos_postgres._programs import Programs, Running

USER: Final = "postgres"
_DEFAULT_PORT: Final = 5432  # names the socket when there is no TCP port
_SOCKET_PATH_BYTES: Final = 107  # sun_path without its final zero byte
_TAKEOVER_S: Final = 30.0
_POLL_S: Final = 0.01

# A small server: one owner, dozens of connections, beside everything else on a laptop.
_SETTINGS: Final = {
    "max_connections": "100",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "max_parallel_workers_per_gather": "0",
    "io_method": "sync",
    "jit": "off",
    "huge_pages": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Errors of statements belong to their callers; here they would only grow the log.
    "log_min_messages": "log",
    "log_checkpoints": "off",
    "unix_socket_permissions": "0700",
}


class EmbeddedPostgres:
    """A PostgreSQL server whose life is that of a ``with`` or ``async with`` block.

    The first start creates the database cluster (C.UTF-8, checksums), later starts reuse it. The
    server listens on a Unix socket in a private folder and, if ``port`` is given, on 127.0.0.1;
    both ask for a random password that is kept beside the data. Leaving the block is a fast
    shutdown, and an immediate one if that takes longer than ``stop_timeout_s``.

    If the owning process dies in any way, a small supervisor stops the server within moments; if
    that was killed too, the kernel stops it. A lock on the data folder is held until the last
    server process is gone, so the next start waits for the end of such a shutdown, and PostgreSQL
    itself recovers what was interrupted.

    Args:
        data_dir: Folder for everything that persists; created with mode 0700.
        port: TCP port on 127.0.0.1; 0 picks a free one, None means Unix socket only.
        run_as: ``auto`` runs as the current user. Root, whom PostgreSQL refuses, becomes another
            uid inside a user namespace while files stay root's; where that is blocked the server
            runs as ``nobody``, with data and programs in a folder under /var/lib or /tmp that
            ``data_dir/relocated`` points to. The other values force one way.
        durable: False skips fsync: for tests, whose data need not survive a power cut.
        start_timeout_s: Bound for initialising and again for starting, crash recovery included.
        stop_timeout_s: How long a fast shutdown may take.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        run_as: RunAs = "auto",
        durable: bool = True,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 20.0,
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._wanted_port = port
        self._port: int | None = None
        self._run_as = run_as
        self._durable = durable
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._abandoned = threading.Event()
        self._lock_fd: int | None = None
        self._running: Running | None = None
        self._socket_dir: Path | None = None
        self._password = ""

    @property
    def port(self) -> int | None:
        """TCP port on 127.0.0.1, or None."""
        return self._port

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if (pid := postmaster_pid(self._cluster)) is None:
            raise Unavailable("The embedded PostgreSQL is not running.")
        return pid

    @property
    def log_file(self) -> Path:
        """Log of the server; the previous log is kept beside it once it grows large."""
        return self._data_dir / "server.log"

    def dsn(self, database: str = "postgres") -> str:
        """URL over the Unix socket, password included."""
        host = quote(str(self._require_started()), safe="")
        return (
            f"postgresql://{USER}:{self._password}@/{quote(database, safe='')}"
            f"?host={host}&port={self._port or _DEFAULT_PORT}"
        )

    def tcp_dsn(self, database: str = "postgres") -> str:
        """URL over TCP, password included.

        Raises:
            ConfigurationError: The server was started without ``port``.
        """
        self._require_started()
        if self._port is None:
            raise ConfigurationError("The embedded PostgreSQL has no TCP port; pass port=0.")
        return (
            f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}"
            f"/{quote(database, safe='')}?sslmode=disable"
        )

    def start(self) -> None:
        """Start the server; returns when it accepts connections.

        Raises:
            ConfigurationError: It cannot run here; the message says why and what to change.
            Unavailable: It took longer than ``start_timeout_s``.
        """
        if self._running is not None:
            return
        self._abandoned.clear()
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_fd = self._take_lock()
            programs = self._prepare_programs()
            if not (self._cluster / "PG_VERSION").exists():
                self._initialise(programs)
            self._password = self._password_file.read_text(encoding="ascii")
            self._launch(programs)
            self._wait_until_ready()
        except OSError as error:
            self.stop()
            raise ConfigurationError(
                f"The embedded PostgreSQL cannot use its folder {self._data_dir}: {error.strerror}."
            ) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and wait for its end. Does nothing if it is not running."""
        if self._running is not None:
            self._running.stop(self._stop_timeout_s)
            self._running = None
        self._socket_dir = None
        if self._lock_fd is not None:
            give_up_lock(self._lock_fd)
            self._lock_fd = None

    def delete_data(self) -> None:
        """Remove everything of a stopped server, wherever it was kept.

        Raises:
            ConfigurationError: It is running.
        """
        if not self._data_dir.exists():
            return
        lock = self._take_lock()
        try:
            if self._relocated.is_symlink():
                shutil.rmtree(self._relocated.resolve(), ignore_errors=True)
            shutil.rmtree(self._data_dir)
        finally:
            os.close(lock)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._abandoned.set()
            with contextlib.suppress(Exception):
                await starting
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.stop))

    # Folders: data_dir holds lock, log and password; the home holds what the server itself opens.

    @property
    def _relocated(self) -> Path:
        return self._data_dir / "relocated"

    @property
    def _home(self) -> Path:
        return self._relocated.resolve() if self._relocated.is_symlink() else self._data_dir

    @property
    def _cluster(self) -> Path:
        return self._home / "cluster"

    @property
    def _password_file(self) -> Path:
        return self._data_dir / "password"

    def _require_started(self) -> Path:
        if self._socket_dir is None:
            raise Unavailable("The embedded PostgreSQL is not running.")
        return self._socket_dir

    def _take_lock(self) -> int:
        return take_lock(self._data_dir, _TAKEOVER_S, self._abandoned)

    def _prepare_programs(self) -> Programs:
        """Choose the identity, and put data and programs where it can reach them."""
        installation = find_installation()
        rotate(self.log_file)

        def works(identity: Identity) -> bool:
            return self._programs(installation, identity).work_in(self._data_dir)

        identity = choose_identity(self._run_as, works)
        if identity.kind == "nobody":
            if not self._relocated.is_symlink():
                self._relocate()
            installation = installation.copy_to(self._home / f"programs-{installation.version}")
        give(self._cluster, identity)
        self._check_version(installation)
        return self._programs(installation, identity)

    def _programs(self, installation: Installation, identity: Identity) -> Programs:
        assert self._lock_fd is not None
        return Programs(installation, identity, self.log_file, self._lock_fd)

    def _relocate(self) -> None:
        base = next(p for p in ("/var/lib", "/tmp") if os.access(p, os.W_OK))  # noqa: S108
        home = Path(tempfile.mkdtemp(prefix="bos-postgres-", dir=base))
        home.chmod(0o711)
        if self._cluster.exists():
            shutil.move(self._cluster, home / "cluster")
        self._relocated.symlink_to(home)

    def _check_version(self, installation: Installation) -> None:
        with contextlib.suppress(FileNotFoundError):
            found = (self._cluster / "PG_VERSION").read_text(encoding="ascii").strip()
            if found != installation.major:
                raise ConfigurationError(
                    f"{self._cluster} was written by PostgreSQL {found}, the programs are version "
                    f"{installation.major}. Dump it with the old version and restore it, or "
                    "choose another folder."
                )

    def _initialise(self, programs: Programs) -> None:
        """Create the cluster beside its final place, so that an interrupted attempt leaves none."""
        partial = self._home / "cluster.partial"
        handed_over = self._home / "password.partial"
        password = secrets.token_hex(24)
        for ctype in ("C.UTF-8", "C"):  # not every system has the first; collation is built in
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700)
            give(partial, programs.identity)
            handed_over.touch(mode=0o600)
            handed_over.write_text(password, encoding="ascii")
            give(handed_over, programs.identity)
            initdb = [
                *(f"--pgdata={partial}", f"--username={USER}", f"--pwfile={handed_over}"),
                *("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                *("--locale=C", f"--lc-ctype={ctype}", "--no-instructions"),
                "--auth=scram-sha-256",
                *(() if self._durable else ("--no-sync",)),
            ]
            try:
                done = programs.run("initdb", initdb, self._start_timeout_s, self._abandoned)
            finally:
                handed_over.unlink()
            if done:
                break
        else:
            raise self._failure("could not be initialised")
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(password, encoding="ascii")
        partial.rename(self._cluster)

    def _launch(self, programs: Programs) -> None:
        clear_stale_pid(self._cluster)
        self._port = free_port() if self._wanted_port == 0 else self._wanted_port
        self._socket_dir, temporary = self._make_socket_dir(programs.identity)
        settings = _SETTINGS | {
            "unix_socket_directories": str(self._socket_dir),
            "port": str(self._port or _DEFAULT_PORT),
            "listen_addresses": "127.0.0.1" if self._port else "",
            "fsync": "on" if self._durable else "off",
            "full_page_writes": "on" if self._durable else "off",
        }
        arguments = ["-D", str(self._cluster)]
        for name, value in settings.items():
            arguments += ["-c", f"{name}={value}"]
        self._running = programs.launch(
            "postgres",
            arguments,
            access=(self._cluster, self._socket_dir),
            grace_s=self._stop_timeout_s,
            remove=self._socket_dir if temporary else None,
        )

    def _make_socket_dir(self, identity: Identity) -> tuple[Path, bool]:
        """A private folder for the socket, and whether it is to be removed at the end."""
        folder = self._home / "socket"
        longest = len(os.fsencode(folder / ".s.PGSQL.65535.lock"))
        temporary = longest > _SOCKET_PATH_BYTES
        if temporary:
            folder = Path(tempfile.mkdtemp(prefix="bos-pg-", dir="/tmp"))
        else:
            # We hold the lock: all that is in there belongs to a server that is gone.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
        give(folder, identity)
        return folder, temporary

    def _wait_until_ready(self) -> None:
        assert self._running is not None
        deadline = time.monotonic() + self._start_timeout_s
        while not ready(self._cluster):
            if self._running.ended:
                raise self._failure("did not start")
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"The embedded PostgreSQL in {self._data_dir} was not ready after "
                    f"{self._start_timeout_s:g} s; see {self.log_file}."
                )
            if self._abandoned.wait(_POLL_S):
                raise Unavailable("The start of the embedded PostgreSQL was cancelled.")

    def _failure(self, what: str) -> ConfigurationError:
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return ConfigurationError(
            f"The embedded PostgreSQL in {self._data_dir} {what}; the end of {self.log_file}: "
            + " / ".join(line.strip()[:160] for line in lines[-3:])
        )
