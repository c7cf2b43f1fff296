"""`consume --schema-registry`: keys and values that name a registered schema, as JSON, before they are printed.

Where the registry is and how it lets one in may stand in the file of --config, under the names that Confluent's clients
use, or in the environment; on the command line everybody on the machine can read a password.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from braidlog.cli.options import client_texts
from braidlog.cli.output import remark
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

_URL: Final = "schema.registry.url"
_USER_INFO: Final = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
_TOKEN: Final = ("bearer.auth.token", "schema.registry.bearer.auth.token")
_CA_FILE: Final = "schema.registry.ssl.ca.location"

_ENV_URL: Final = "BRAIDLOG_SCHEMA_REGISTRY"
_ENV_USER_INFO: Final = "BRAIDLOG_SCHEMA_REGISTRY_USER_INFO"
_ENV_TOKEN: Final = "BRAIDLOG_SCHEMA_REGISTRY_TOKEN"

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"value": ("value",), "key": ("key",), "both": ("key", "value")}

EPILOG: Final = """\
--schema-registry decodes values that were written with a schema registry (Avro, JSON Schema, Protobuf) to JSON;
--decode says of what. Its address may come from $BRAIDLOG_SCHEMA_REGISTRY or schema.registry.url in the file of
--config; a login from $BRAIDLOG_SCHEMA_REGISTRY_USER_INFO (USER:PASSWORD) or basic.auth.user.info, or from
$BRAIDLOG_SCHEMA_REGISTRY_TOKEN or bearer.auth.token; certificates to trust from schema.registry.ssl.ca.location.
"""


def add_decoding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema-registry", metavar="URL", help="decode to JSON by this registry's schemas, see below")
    parser.add_argument("--decode", choices=tuple(_PARTS), help="what the registry is asked about (default value)")
    parser.add_argument(
        "--undecodable",
        choices=("error", "skip", "raw"),
        default="error",
        help="of a record that cannot be decoded: stop, leave it out, or print its bytes (default error)",
    )


class DecodingStopped(UserError):
    """At a record that --undecodable does not allow, or without the registry; those before it were printed."""


class UndecodableField(Exception):
    """The key or the value of a record, while it is made into text; says why."""


class RecordDecoding:
    """Puts JSON in the place of bytes, before they are made into text."""

    def __init__(self, decoder: Any, parts: tuple[str, ...], undecodable: str) -> None:
        self._decoder = decoder
        self._parts = parts
        self._undecodable = undecodable
        self.skipped = 0

    def before(self, part: str, text: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        """How a key or a value becomes text: decoded, and then as `text` says."""
        if part not in self._parts:
            return text
        from braidlog.client.schema_registry.decoding import Undecodable

        def decoded(data: bytes) -> bytes:
            try:
                made = json.dumps(self._decoder.decode(data), ensure_ascii=False).encode("utf-8", "surrogatepass")
            except (Undecodable, RecursionError) as problem:
                if self._undecodable == "raw":
                    return text(data)
                reason = problem if isinstance(problem, Undecodable) else "is nested too deeply"
                raise UndecodableField(f"the {part} {reason}") from problem
            return text(made)

        return decoded

    def stopped_at(self, where: TopicPartition, offset: int, problem: UndecodableField) -> DecodingStopped | None:
        """What ends the command; None where such a record is left out."""
        if self._undecodable == "skip":
            self.skipped += 1
            return None
        return DecodingStopped(
            f"{where}, offset {offset}: {problem}; --undecodable skip leaves such records out, raw prints their bytes"
        )

    def conclude(self) -> None:
        if self.skipped:
            remark(f"left out, since not decodable: {self.skipped} record{'s'[: self.skipped > 1]}")


def record_decoding(options: argparse.Namespace) -> RecordDecoding | None:
    """As the options say; what is decoded is printed as JSON."""
    if options.schema_registry is None and options.decode is None:
        return None
    parts = _PARTS[options.decode or "value"]
    for part in parts:
        if getattr(options, f"{part}_format") not in ("raw", "json"):
            raise UserError(f"what is decoded is printed as JSON: leave out --{part}-format")
        setattr(options, f"{part}_format", "json")
    from braidlog.client.schema_registry.decoding import RecordDecoder

    return RecordDecoding(RecordDecoder(_registry(options)), parts, options.undecodable)


def _registry(options: argparse.Namespace) -> Any:
    from braidlog.client.schema_registry.registry import Registry

    texts = client_texts(options)

    def setting(*names: str, environment: str = "") -> str | None:
        found = next((texts[name] for name in names if texts.get(name)), None)
        return found or (os.environ.get(environment) or None if environment else None)

    url = options.schema_registry or setting(_URL, environment=_ENV_URL)
    if url is None:
        raise UserError("--decode needs a registry to ask: give --schema-registry URL")
    login = setting(*_USER_INFO, environment=_ENV_USER_INFO)
    user, colon, password = (login or "").partition(":")
    if login is not None and not colon:
        raise UserError("the registry's login is USER:PASSWORD; there is no colon in it")
    token = setting(*_TOKEN, environment=_ENV_TOKEN)
    return Registry(
        url,
        user=user if login is not None else None,
        password=password if login is not None else None,
        token=token,
        ca_file=setting(_CA_FILE),
        timeout_s=options.request_timeout,
    )
