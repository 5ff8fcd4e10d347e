"""Isolated interpreter: started, given one program, and killed with everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import signal
import socket
from collections.abc import Iterator, Mapping
from io import FileIO
from typing import Any

from bos_sandbox.limits import ReturnedFiles
from bos_sandbox.output import Output, OutputLimitExceeded
from bos_sandbox.process_tier.inside import wire
from bos_sandbox.process_tier.jail import Jail
from bos_sandbox.process_tier.seccomp import first_filter, second_filter

_FILE_CHECK_S = 0.05
_DRAIN_S = 2.0
_MAX_START_MESSAGE = 4096


class NotStarted(Exception):
    """An isolated interpreter did not come up; the text holds its last words, for the log only."""


class Stopped(Exception):
    """The service stopped a program; the text is the limit that was exceeded."""


class Died(Exception):
    """The interpreter ended without an answer; ``code`` is its exit code, 128 + n for signal n."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class Isolated:
    """An isolated interpreter that waits for its one program; made by :func:`start_isolated`."""

    def __init__(
        self, process: asyncio.subprocess.Process, handle: int, control: socket.socket, folder: int
    ) -> None:
        self._process = process
        self._handle = handle
        self._control = control
        self._folder = folder
        self._stopped_by: str | None = None
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def alive(self) -> bool:
        """Whether it still waits, as far as is known."""
        return self._process.returncode is None

    async def run(
        self,
        request: Mapping[str, Any],
        output: Output,
        *,
        timeout_s: float,
        max_answer_bytes: int,
        max_files: int,
        returned: ReturnedFiles | None = None,
    ) -> dict[str, Any]:
        """Hand over ``request`` and wait for the answer, which the program may have forged.

        With ``returned``, what it says of files is replaced by names and contents under "files".

        Raises:
            Stopped: A limit that is watched from outside was exceeded.
            Died: There is no answer.
        """
        self._watchers = [
            asyncio.create_task(self._keep_output("stdout", output)),
            asyncio.create_task(self._keep_output("stderr", output)),
            asyncio.create_task(self._watch_files(max_files)),
        ]
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._exchange(dict(request), max_answer_bytes)
                if answer is None:
                    code = await self._process.wait()
                else:
                    answer["files"] = await self._files(answer.get("files"), returned)
        except TimeoutError:
            raise Stopped(self._stopped_by or "time") from None
        finally:
            self._watchers[2].cancel()
            self._kill()
            try:
                # What was printed is in the pipes, which end with the process.
                await asyncio.wait(self._watchers, timeout=_DRAIN_S)
            finally:
                for watcher in self._watchers:
                    watcher.cancel()
        if self._stopped_by is not None:
            raise Stopped(self._stopped_by)
        if answer is None:
            raise Died(code)
        return answer

    async def close(self) -> None:
        """Kill it with everything it started, and wait for its end; only once."""
        self._kill()
        self._control.close()
        for descriptor in (self._handle, self._folder):
            os.close(descriptor)
        if self._watchers:
            # Two cannot read from one pipe, and a process whose end is not waited for stays.
            await asyncio.wait(self._watchers)
        await self._process.communicate()

    def _kill(self) -> None:
        """Kill the first process of the namespace, with which the kernel ends all the others.

        Bubblewrap, its parent, then sees it off and ends too. To kill bubblewrap itself would leave
        the dead for the machine's first process to bury, which in a container may be this service.
        """
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _stop(self, limit: str) -> None:
        self._stopped_by = self._stopped_by or limit
        self._kill()

    async def _exchange(self, request: dict[str, Any], most: int) -> dict[str, Any] | None:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._control, wire.pack(request))
            header = await self._receive(4)
            size = int.from_bytes(header, "big")
            if len(header) < 4:
                return None
            if size > most:
                raise Stopped("result_size")
            data = await self._receive(size)
        except (ConnectionError, BrokenPipeError):
            return None
        return wire.unpack(data) if len(data) == size else None

    async def _files(self, declared: object, most: ReturnedFiles | None) -> list[tuple[str, bytes]]:
        """The files behind the answer, as long as what it says of them is within bounds."""
        found: list[tuple[str, bytes]] = []
        if most is None or not isinstance(declared, list) or len(declared) > most.count:
            return found
        left = most.total
        for one in declared:
            match one:
                case [str(name), int(size)] if 0 <= size <= min(most.each, left):
                    left -= size
                case _:
                    break
            content = await self._receive(size)
            if len(content) < size:
                break
            found.append((name, content))
        return found

    async def _receive(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray()
        while len(data) < size:
            chunk = await loop.sock_recv(self._control, min(size - len(data), 1 << 18))
            if not chunk:
                break
            data += chunk
        return bytes(data)

    async def _keep_output(self, name: str, output: Output) -> None:
        stream = self._process.stdout if name == "stdout" else self._process.stderr
        assert stream is not None
        try:
            while chunk := await stream.read(1 << 16):
                output.write_bytes(name, chunk)
        except OutputLimitExceeded:
            self._stop("output")
            # A process has ended for asyncio only when its pipes are read to their end.
            while await stream.read(1 << 16):
                pass

    async def _watch_files(self, most: int) -> None:
        # The size of the folder is bounded by its mount; the number of its files, which cost kernel
        # memory even when empty, is not.
        while True:
            usage = os.fstatvfs(self._folder)
            if usage.f_files - usage.f_ffree > most:
                self._stop("files")
                return
            await asyncio.sleep(_FILE_CHECK_S)


async def start_isolated(jail: Jail, *, preload: bool, timeout_s: float) -> Isolated:
    """Start an isolated interpreter and wait until it is ready for its program.

    Args:
        jail: How.
        preload: Import numpy and pandas first, which takes most of a second.
        timeout_s: Time to get ready.

    Raises:
        NotStarted: It did not get ready.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    process = None
    try:
        with theirs, _pipe() as (filter_out, filter_in), _pipe() as (info_out, info_in):
            # The filter is far smaller than the buffer of a pipe, so this does not block.
            filter_in.write(first_filter(platform.machine()))
            filter_in.close()
            spawning = asyncio.ensure_future(
                _spawn(jail, theirs.fileno(), filter_out, info_in, preload)
            )
            try:
                process = await asyncio.shield(spawning)
            except asyncio.CancelledError:
                # Half a process could be neither killed as a whole nor waited for.
                await asyncio.wait([spawning])
                process = None if spawning.exception() else spawning.result()
                raise
            info_in.close()
            theirs.close()
            async with asyncio.timeout(timeout_s):
                folder = await _ready(ours)
            first = json.loads(info_out.read())["child-pid"]
        return Isolated(process, os.pidfd_open(first), ours, folder)
    except BaseException as error:
        ours.close()
        words = await _last_words(process) if process is not None else ""
        if isinstance(error, OSError | EOFError):  # TimeoutError is an OSError
            raise NotStarted(f"{type(error).__name__}: {words}") from error
        raise


async def _spawn(
    jail: Jail, control: int, filter_out: FileIO, info_in: FileIO, preload: bool
) -> asyncio.subprocess.Process:
    program = second_filter(platform.machine()).hex()
    command = jail.command(
        filter_fd=filter_out.fileno(),
        info_fd=info_in.fileno(),
        arguments=[str(control), "preload" if preload else "plain", program],
    )
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(control, filter_out.fileno(), info_in.fileno()),
        env={},
        start_new_session=True,  # a group of its own, which can be killed as a whole
    )


async def _ready(control: socket.socket) -> int:
    """Wait for the first message, and return the descriptor of its folder that came along."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(control, wake)
    try:
        await readable
    finally:
        loop.remove_reader(control)
    data, descriptors, _, _ = socket.recv_fds(control, len(wire.READY), 1)
    if data != wire.READY or not descriptors:
        for descriptor in descriptors:
            os.close(descriptor)
        raise EOFError
    return descriptors[0]


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """Kill a process that did not get ready; what it said last.

    Its child goes with it by group: until it has asked the kernel to die with its parent it would
    stay, wait indefinitely for what the parent was to set up, and hold the pipes open.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    _, words = await process.communicate()
    return words[-_MAX_START_MESSAGE:].decode("utf-8", "replace").strip()


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """A pipe; its ends are objects because closing a number twice could close another's file."""
    reading, writing = os.pipe()
    with FileIO(reading, "r") as source, FileIO(writing, "w") as sink:
        yield source, sink
