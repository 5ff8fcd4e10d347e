"""Every public RPC, read from the contracts: a service with an HTTP binding is a public one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from google.api import annotations_pb2
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

import bos
from bos.common.v1.access_pb2 import open_method

_VARIABLE = re.compile(r"\{(\w+)\}")
_DEPTH = 4


@dataclass(frozen=True)
class Binding:
    verb: str
    template: str
    body: str

    def request(self, message: Message) -> tuple[str, str, Any]:
        """Verb, path and JSON body that stand for ``message``."""
        fields = MessageToDict(message, preserving_proto_field_name=True)
        path = _VARIABLE.sub(lambda found: str(fields.pop(found[1], "")), self.template)
        if not self.body:
            query = urlencode({key: value for key, value in fields.items() if value != {}})
            return self.verb, f"{path}?{query}" if query else path, None
        return self.verb, path, fields if self.body == "*" else fields.get(self.body, {})


@dataclass(frozen=True)
class PublicRpc:
    service: str
    method: MethodDescriptor

    @property
    def name(self) -> str:
        return f"{self.service.rpartition('.')[2]}.{self.method.name}"

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.method.name}"

    @property
    def streams(self) -> bool:
        return bool(self.method.server_streaming)

    @property
    def reads(self) -> bool:
        """Whether the contract says that it changes nothing; probes and tools do not."""
        level = self.method.GetOptions().idempotency_level
        return level == MethodOptions.NO_SIDE_EFFECTS or self.service.startswith("grpc.")

    @property
    def open(self) -> bool:
        return bool(self.method.GetOptions().Extensions[open_method]) or self.service.startswith(
            "grpc."
        )

    @property
    def bindings(self) -> list[Binding]:
        rule = self.method.GetOptions().Extensions[annotations_pb2.http]
        found = []
        for each in (rule, *rule.additional_bindings):
            verb = each.WhichOneof("pattern")
            if verb:
                found.append(Binding(verb.upper(), getattr(each, verb), each.body))
        return found

    def message(self, **fields: Any) -> Message:
        """A request; names of nested fields are joined by two underscores."""
        made: Message = GetMessageClass(self.method.input_type)()
        for name, value in fields.items():
            *outer, last = name.split("__")
            target: Any = made
            for part in outer:
                target = getattr(target, part)
            if isinstance(value, list):
                getattr(target, last).extend(value)
            else:
                setattr(target, last, value)
        return made

    def messages(self, first: Message, content: bytes = b"What everybody has.") -> list[Message]:
        """A stream of requests that begins with ``first``, and what makes it a whole one."""
        if self.name in ("DocumentsService.UploadDocument", "FileService.UploadFile"):
            return [first, type(first)(content=content)]  # type: ignore[call-arg]
        return [first]

    @property
    def references(self) -> list[str]:
        """Fields of the request that name something by its id, nested ones joined as above."""
        found = list(_references(self.method.input_type, (), _DEPTH))
        # Files of a workspace have no ids: each user's are known by their names.
        named = self.service == "bos.files.v1.FileService" and "name" in (
            field.name for field in self.method.input_type.fields
        )
        return [*found, "name"] if named else found


def public_rpcs() -> list[PublicRpc]:
    return sorted(_public(), key=lambda rpc: rpc.name)


def all_rpcs() -> list[PublicRpc]:
    """Every method of every contract, also of those that are not public, and of probes; by path."""
    pool = descriptor_pool.Default()
    probes = [
        service.full_name
        for contract in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
        for service in contract.services_by_name.values()
    ]
    found = (
        PublicRpc(service, method)
        for service in dict.fromkeys([*_service_names(), *probes])
        for method in pool.FindServiceByName(service).methods
    )
    return sorted(found, key=lambda rpc: rpc.path)


def _public() -> Iterator[PublicRpc]:
    pool = descriptor_pool.Default()
    for service in dict.fromkeys(_service_names()):
        methods = pool.FindServiceByName(service).methods
        if any(m.GetOptions().HasExtension(annotations_pb2.http) for m in methods):
            yield from (PublicRpc(service, method) for method in methods)


def _service_names() -> Iterator[str]:
    for root in map(Path, bos.__path__):
        for file in sorted(root.rglob("*_pb2.py")):
            module = ".".join(("bos", *file.relative_to(root).with_suffix("").parts))
            contract = importlib.import_module(module).DESCRIPTOR
            yield from (f"{contract.package}.{name}" for name in contract.services_by_name)


def _references(message: Descriptor, path: tuple[str, ...], depth: int) -> Iterator[str]:
    for field in message.fields:
        here = (*path, field.name)
        if field.type == field.TYPE_STRING and field.name.endswith(("_id", "_ids")):
            yield "__".join(here)
        elif (
            field.type == field.TYPE_MESSAGE
            and depth
            and not field.is_repeated
            and field.message_type.full_name.startswith("bos.")
        ):
            yield from _references(field.message_type, here, depth - 1)
