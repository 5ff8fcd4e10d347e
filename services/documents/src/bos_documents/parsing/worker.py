"""A parser process: reads one document, then ends. Started by the pool, never by hand.

Before it sees the document it gives up what it does not need: root, the network, new privileges,
writing files, memory and time beyond its caps. It holds no environment and no descriptor but the
socket to the service and the document itself.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import encodings.aliases
import importlib
import os
import resource
import signal
import socket
import sys
from typing import Any

from bos_documents.parsing import wire
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.reader import open_document
from bos_documents.parsing.rejections import DocumentRejected

_UNPRIVILEGED = 65534
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_NICENESS = 10
_ON_DEMAND = (
    *("heapq", "bisect", "select", "binascii", "base64", "quopri", "bz2", "lzma", "stringprep"),
    *(
        "email.parser",
        "email.feedparser",
        "email.iterators",
        "email.generator",
        "email.headerregistry",
    ),
)
_SAMPLES = (
    b"A title\n\ntext\n",
    b"a;b\n1;2\n",
    "Gr\u00f6\u00dfe".encode("cp1252"),
    b"<html><body><p>text</p></body></html>",
    b"# title\n\n**text**\n",
    b"From: a\nTo: b\nDate: Fri, 14 Mar 2025 10:00:00 +0000\nContent-Type: text/html\n\n<p>text",
)


def main(descriptor: int) -> None:
    """Serve one document."""
    control = socket.socket(fileno=descriptor)
    _load()
    # What was loaded is kept compiled for the next process: a third of its start. From here on,
    # nothing is written.
    sys.dont_write_bytecode = True
    offline = _give_up()
    control.sendall(wire.pack({"ready": True, "offline": offline}))
    data, descriptors, _, _ = socket.recv_fds(control, 4, 1)
    if len(data) < 4 or not descriptors:
        return
    request = wire.unpack(_exactly(control, int.from_bytes(data, "big")))
    limits = ParsingLimits(**request["limits"])
    _cap(limits)
    _answer(control, descriptors[0], str(request["name"]), limits)


def _load() -> None:
    """Load what is loaded on demand, while files that belong to root alone can still be read."""
    for name in {*encodings.aliases.aliases.values(), "utf_8_sig", "cp437", "idna"}:
        with contextlib.suppress(LookupError, ImportError):
            codecs.lookup(name)
    for name in _ON_DEMAND:
        importlib.import_module(name)
    for sample in _SAMPLES:
        open_document(sample, "", ParsingLimits()).page(1)


def _answer(control: socket.socket, document: int, name: str, limits: ParsingLimits) -> None:
    try:
        _allow_cpu(limits)
        with os.fdopen(document, "rb") as file:
            content = file.read(limits.file_bytes + 1)
        if len(content) > limits.file_bytes:
            raise DocumentRejected("DOCUMENT_TOO_LARGE")
        source = open_document(content, name, limits)
        control.sendall(wire.pack(wire.info_message(source.info)))
        while size := control.recv(4, socket.MSG_WAITALL):
            request = wire.unpack(_exactly(control, int.from_bytes(size, "big")))
            _allow_cpu(limits)
            for message in wire.page_messages(source.page(int(request["page"]))):
                control.sendall(wire.pack(message))
    except DocumentRejected as rejected:
        _refuse(control, rejected)
    except (MemoryError, RecursionError):
        _refuse(control, DocumentRejected("DOCUMENT_TOO_COMPLEX"))
    except OSError:
        return  # the service has gone
    except ImportError:
        raise  # of the installation, not of the document
    except Exception as error:
        _refuse(control, DocumentRejected("DOCUMENT_DAMAGED", detail=_place(error)))


def _refuse(control: socket.socket, rejected: DocumentRejected) -> None:
    message: dict[str, Any] = {"rejected": rejected.reason, "message": rejected.message[:900]}
    message["detail"] = rejected.detail[:200]
    try:
        control.sendall(wire.pack(message))
    except OSError:
        return


def _place(error: Exception) -> str:
    """What was raised where, for the log: no text of it, which may be the document's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = os.path.basename(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} {file}:{trace.tb_lineno}"


def _exactly(control: socket.socket, size: int) -> bytes:
    return control.recv(min(size, wire.MAX_MESSAGE), socket.MSG_WAITALL)


def _give_up() -> bool:
    """Give up privileges; whether the network is out of reach."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.nice(_NICENESS)
    if os.geteuid() == 0:
        offline = libc.unshare(_CLONE_NEWNET) == 0
        os.setgroups([])
        os.setresgid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)
        os.setresuid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)
    else:
        offline = libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # After the change of user, which would undo it.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    return bool(offline)


def _cap(limits: ParsingLimits) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    most = limits.document_cpu_s + 5
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))


def _allow_cpu(limits: ParsingLimits) -> None:
    """Allow the processor time of one page more, within that of the document."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime)
    most = limits.document_cpu_s + 5
    resource.setrlimit(resource.RLIMIT_CPU, (min(spent + limits.page_cpu_s + 1, most), most))


if __name__ == "__main__":
    main(int(sys.argv[1]))
