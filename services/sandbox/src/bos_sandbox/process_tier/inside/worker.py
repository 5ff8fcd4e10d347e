"""Runs one isolated program, answers once, and is killed.

Started by :mod:`bos_sandbox.process_tier.jail`. The isolation is complete before the
first instruction; what is done here (limits, second filter, stopped clocks) narrows it further.
The answer is the program's own word for how it fared: it may lie, which the service knows.

Start time counts, so this imports the C modules ``_ast`` and ``_socket`` in place of the far larger
Python ones around them.
"""

from __future__ import annotations

import _ast
import _socket
import array
import contextlib
import ctypes
import errno
import json
import mmap
import os
import random
import resource
import sys
import time
from types import ModuleType, TracebackType
from typing import Any

from . import clock, files, wire
from .export import NotData, export, export_variables

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PROGRAM = "<program>"
_ONLY_PARSE = _ast.PyCF_ONLY_AST
_LAST = "_bos_last"
_MAX_MESSAGE_CHARS = 2_000
_NO_MEMORY = wire.pack({"status": "limit", "kind": "memory"})
_REFUSED = {errno.EPERM: "system_call", errno.EACCES: "file_access", errno.EROFS: "file_access"}
_WITH_FILES = ("succeeded", "failed", "result")
_FULL = {
    errno.ENOSPC: "disk",
    errno.EFBIG: "disk",
    errno.EDQUOT: "disk",
    errno.EMFILE: "open_files",
}


def main(argv: list[str]) -> None:
    """Serve one request on the control socket.

    Args:
        argv: Program name, descriptor of the socket, "preload" or "plain", second filter in hex.
    """
    # All four, or Python would ask the kernel, which the filter refuses.
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, int(argv[1]))
    if argv[2] == "preload":
        _preload()
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
    # With a descriptor of its folder the service can count files without a way into the sandbox.
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [folder]))
    control.sendmsg([wire.READY], [rights])
    os.close(folder)
    request = _receive(control)
    program = _Program(request, bytes.fromhex(argv[3]))
    contents: list[bytes] = []
    try:
        answer = wire.pack(program.run(contents))
    except MemoryError:  # not even enough to say so
        answer = _NO_MEMORY
        contents.clear()
    control.sendall(answer)
    for content in contents:
        control.sendall(content)
    os._exit(0)


def _preload() -> None:
    import numpy as np
    import pandas as pd  # type: ignore[import-untyped]

    # What the first use of a table would otherwise load or build.
    pd.DataFrame({"key": ["a", "b"], "value": np.arange(2.0)}).groupby("key")["value"].sum()


def _receive(control: _socket.socket) -> dict[str, Any]:
    left = int.from_bytes(_read(control, 4), "big")
    request: dict[str, Any] = json.loads(_read(control, left))
    return request


def _read(control: _socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = control.recv(min(size - len(data), 1 << 20))
        if not chunk:
            os._exit(0)  # the service is gone
        data += chunk
    return bytes(data)


class _Program:
    """One program and what came of it."""

    def __init__(self, request: dict[str, Any], second_filter: bytes) -> None:
        self._source = request["code"]
        self._inputs = {name: wire.decode(value) for name, value in request["inputs"].items()}
        self._limits = request["limits"]
        self._result_bytes = request["result_bytes"]
        self._filter = second_filter
        self._files: dict[str, int] | None = request["files"]
        self._folder = os.getcwd()
        self._figures = request["figures"]

    def run(self, contents: list[bytes]) -> dict[str, Any]:
        """The answer; ``contents`` gets what goes behind it: the files that it names."""
        if self._figures:
            files.prepare_figures()
        main_module = self._module()
        self._repeatable()
        _set_limits(self._limits)
        _add_filter(self._filter)
        started = time.perf_counter()
        answer = self._answer(main_module)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have put anything in its place
                stream.flush()
        if self._files is not None and answer["status"] in _WITH_FILES:
            self._add_files(answer, contents)
        answer["seconds"] = time.perf_counter() - started
        answer["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return answer

    def _add_files(self, answer: dict[str, Any], contents: list[bytes]) -> None:
        assert self._files is not None
        try:
            problems = files.save_figures(self._folder) if answer["status"] == "succeeded" else []
            found, left_out = files.collect(self._folder, self._files)
        except MemoryError:
            found, problems, left_out = (
                [],
                [],
                ["The files were left out: no memory was left."],
            )
        except Exception as error:  # the program may have broken what is needed for it
            kind = type(error).__name__
            found, problems, left_out = [], [], [f"The files were left out: {kind}."]
        contents += [content for _, content in found]
        answer["files"] = [[name, len(content)] for name, content in found]
        answer["file_problems"] = [*problems, *left_out]

    def _module(self) -> ModuleType:
        """An empty ``__main__``, with nothing of this worker in reach by name."""
        module = ModuleType("__main__")
        module.__dict__.update(self._inputs)
        sys.modules["__main__"] = module
        for name in [name for name in sys.modules if name.partition(".")[0] == "inside"]:
            del sys.modules[name]
        del sys.path[0]
        sys.argv = ["program"]
        return module

    def _repeatable(self) -> None:
        """No clock but ``today``; chance that is the same every time."""
        clock.stop_clocks(self._inputs.get("today"))
        random.seed(0)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(0)

    def _answer(self, module: ModuleType) -> dict[str, Any]:
        try:
            names = self._execute(module)
            return self._collected(names)
        except SystemExit as error:
            return _left(error.code) or self._collected(module.__dict__)
        except NotData as error:
            return {"status": "result", "kind": error.problem, "message": error.kind}
        except BaseException as error:
            return _ended_by(error)

    def _execute(self, module: ModuleType) -> dict[str, Any]:
        tree = compile(self._source, _PROGRAM, "exec", _ONLY_PARSE)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, _ast.Expr):
            place = {
                name: getattr(last, name)
                for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
            }
            target = _ast.Name(_LAST, _ast.Store(), **place)
            tree.body[-1] = _ast.Assign([target], last.value, **place)
        exec(compile(tree, _PROGRAM, "exec"), module.__dict__)  # noqa: S102 - this is the sandbox
        return module.__dict__

    def _result(self, names: dict[str, Any]) -> Any:
        value = names.get(_LAST)
        try:
            if value is not None:
                return export(value, self._result_bytes)
        except NotData as error:
            # A program that draws may well end with a call that returns a part of the drawing.
            if self._files is None or error.problem != "type":
                raise
        return export(names.get("result"), self._result_bytes)

    def _collected(self, names: dict[str, Any]) -> dict[str, Any]:
        result = wire.encode(self._result(names))
        shown = {
            name: value
            for name, value in names.items()
            if name[0] != "_" and name not in self._inputs and not isinstance(value, ModuleType)
        }
        variables = export_variables(shown, self._result_bytes // 4)
        return {
            "status": "succeeded",
            "result": result,
            "locals": {name: wire.encode(value) for name, value in variables.items()},
        }


def _ended_by(error: BaseException) -> dict[str, Any]:
    line = _line(error)
    kind = type(error).__name__
    _clear_frames(error.__traceback__)  # what they hold may be the reason for the error
    match error:
        case MemoryError():
            return {"status": "limit", "kind": "memory"}
        case RecursionError():
            return {"status": "limit", "kind": "recursion"}
        case OSError(errno=int(code)) if code in _FULL:
            return {"status": "limit", "kind": _FULL[code]}
        case OSError(errno=int(code)) if code in _REFUSED:
            message = f"{line}{_text(error)}"
            return {"status": "violation", "kind": _REFUSED[code], "message": message}
    text = _text(error)
    message = f"{line}{kind}: {text}" if text else f"{line}{kind}"
    return {"status": "failed", "kind": kind, "message": message}


def _left(code: Any) -> dict[str, Any] | None:
    """How a program ended that called ``sys.exit``; None for a good end."""
    if code is None or code == 0:
        return None
    number = code if isinstance(code, int) else 1
    message = f"SystemExit: {str(code)[:_MAX_MESSAGE_CHARS]}"
    return {
        "status": "failed",
        "kind": "SystemExit",
        "message": message,
        "exit_code": number & 0xFF,
    }


def _line(error: BaseException) -> str:
    line, entry = 0, error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == _PROGRAM:
            line = entry.tb_lineno
        entry = entry.tb_next
    if isinstance(error, SyntaxError) and not line:
        line = error.lineno or 1
    return f"line {line}: " if line else ""


def _clear_frames(entry: TracebackType | None) -> None:
    while entry is not None:
        with contextlib.suppress(RuntimeError):  # the frame is still running
            entry.tb_frame.clear()
        entry = entry.tb_next


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MAX_MESSAGE_CHARS]
    except Exception:
        return ""


def _set_limits(limits: dict[str, int]) -> None:
    fixed = {
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_FSIZE: limits["disk_bytes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_NPROC: limits["threads"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_AS: _address_space() + limits["memory_bytes"],
    }
    for kind, value in fixed.items():
        resource.setrlimit(kind, (value, value))


def _address_space() -> int:
    """Bytes of address space in use, found by trying: there is no ``/proc`` to read it from."""
    page = mmap.PAGESIZE
    low, high = 0, 1 << 34  # in pages
    while low < high:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle * page, resource.RLIM_INFINITY))
        try:
            mmap.mmap(-1, page).close()
        except OSError:
            low = middle + 1
        else:
            high = middle
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return low * page


def _add_filter(code: bytes) -> None:
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]

    program = Filter(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the second filter was not accepted")
