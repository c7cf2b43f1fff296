"""Messages of a registry's Protobuf schemas: from a schema to the class that reads its bytes.

A schema is a file, as .proto text or as a descriptor in base64 (some serializers register these, and some registries
hand them out unchanged), with the files that it imports. Each schema has a descriptor pool of its own, so that two
versions of a message never meet.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from braidlog.client.schema_registry.proto_text import ProtoSyntaxError, parse_proto
from braidlog.client.schema_registry.registry import ProtobufSchema

# A registry does not say what its schemas would be called as files.
_OWN_NAME: Final = "schema.proto"
_COMPILED: Final = ("google/protobuf/", "google/type/", "google/rpc/", "google/api/")
# Confluent's registry knows these by itself.
_BUILT_IN: Final[Mapping[str, str]] = {
    "confluent/meta.proto": 'syntax = "proto3"; package confluent; '
    "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
}


class UnusableProtobuf(ValueError):
    """The schema cannot be made sense of, or has no such message."""


class Messages:
    """What a schema defines."""

    def __init__(self, pool: DescriptorPool, file: Any) -> None:
        self._pool = pool
        self._file = file

    def at(self, path: tuple[int, ...]) -> Any:
        """The class of the message that indexes lead to; the entries of maps, which stand in no file, do not count."""
        within = list(self._file.message_types_by_name.values())
        found: Any = None
        for index in path:
            if index >= len(within):
                raise UnusableProtobuf(f"has no message at {list(path)}")
            found = within[index]
            within = [each for each in found.nested_types if not each.GetOptions().map_entry]
        return GetMessageClass(found)

    def named(self, name: str) -> Any:
        """The class of a message by its name, with or without the package."""
        package = self._file.package
        for full in (name, f"{package}.{name}" if package else name):
            try:
                return GetMessageClass(self._pool.FindMessageTypeByName(full))
            except KeyError:
                continue
        there = sorted(each.full_name for each in self._file.message_types_by_name.values())
        raise UnusableProtobuf(f"has no message {name!r}; it has {', '.join(there[:10]) or 'none'}")


def messages_of(schema: ProtobufSchema) -> Messages:
    found = _compiled(schema)
    if isinstance(found, Messages):
        return found
    raise UnusableProtobuf(found)


@lru_cache(maxsize=1024)
def _compiled(schema: ProtobufSchema) -> Messages | str:
    """What a schema defines, or what is wrong with it, so that neither is found out again with every record."""
    pool = DescriptorPool()
    try:
        own = _file(schema.text, _OWN_NAME)
        _Loading(pool, schema.imports).add(own, ())
    except UnusableProtobuf as problem:
        return str(problem)
    return Messages(pool, pool.FindFileByName(own.name))


@lru_cache(maxsize=64)
def messages_of_set(data: bytes) -> Messages:
    """Of a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it; its own file is the last."""
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError:
        files = ()
    if not files:
        raise UnusableProtobuf("is no descriptor set")
    pool = DescriptorPool()
    loading = _Loading(pool, {}, {each.name: each for each in files})
    for each in files:
        loading.add(each, ())
    return Messages(pool, pool.FindFileByName(files[-1].name))


def imports_of(text: str) -> list[str]:
    """What a .proto file imports that is not known without being given."""
    names = _file(text, _OWN_NAME).dependency
    return [each for each in names if each not in _BUILT_IN and not each.startswith("google/protobuf/")]


class _Loading:
    """Files into a pool, those first that others import."""

    def __init__(
        self, pool: DescriptorPool, texts: Mapping[str, str], files: Mapping[str, FileDescriptorProto] | None = None
    ) -> None:
        self._pool = pool
        self._texts = texts
        self._files = files or {}
        self._done: set[str] = set()

    def add(self, file: FileDescriptorProto, above: tuple[str, ...]) -> None:
        if file.name in self._done:
            return
        if file.name in above:
            raise UnusableProtobuf(f"imports itself by way of {file.name}")
        for name in file.dependency:
            if name not in self._done:
                self.add(self._imported(name), (*above, file.name))
        self._done.add(file.name)
        try:
            self._pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as problem:
            raise UnusableProtobuf(f"is not valid: {' '.join(str(problem).split())}") from None

    def _imported(self, name: str) -> FileDescriptorProto:
        if name in self._files:
            return self._files[name]
        if name in self._texts:
            return _file(self._texts[name], name)
        if name in _BUILT_IN:
            return parse_proto(_BUILT_IN[name], name)
        if name.startswith(_COMPILED) and name.endswith(".proto"):
            found = FileDescriptorProto()
            try:
                import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2").DESCRIPTOR.CopyToProto(found)
            except ImportError:
                raise UnusableProtobuf(f"imports {name}: pip install googleapis-common-protos") from None
            return found
        raise UnusableProtobuf(f"imports {name}, which is not among its references")


def _file(text: str, name: str) -> FileDescriptorProto:
    """From .proto text, or a descriptor in base64, which has no blank in it."""
    if text and not any(sign.isspace() or sign in "{;" for sign in text):
        try:
            found = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, DecodeError, ValueError):
            raise UnusableProtobuf("is neither .proto text nor a descriptor in base64") from None
        found.name = name
        return found
    try:
        return parse_proto(text, name)
    except ProtoSyntaxError as problem:
        raise UnusableProtobuf(f"cannot be read: {problem}") from None
