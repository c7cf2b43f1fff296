"""A schema registry's HTTP API: the one of Confluent's, which Karapace and Apicurio speak as well.

Schemas are asked for once a process, by the id that records carry (`wire_format`).
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final, NamedTuple

from braidlog.core.errors import UserError

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ROUNDS: Final = 3
_PAUSE_S: Final = 0.2
_MOST_BYTES: Final = 16 << 20
_UNKNOWN_KEPT_S: Final = 30.0


class RegistryError(UserError):
    """The registry could not be asked, or refused; no record is to blame."""


class UnknownSchema(RegistryError):
    """The registry answers, and has no such schema or subject."""


@dataclass(frozen=True)
class ProtobufSchema:
    """A file's text, and that of the files it imports, and they in turn, by the names they are imported by."""

    text: str
    imports: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.text)


class RegisteredSchema(NamedTuple):
    id: int
    # AVRO, JSON or PROTOBUF
    kind: str
    # What the JSON text holds, or a ProtobufSchema
    schema: Any


@dataclass(frozen=True)
class Registry:
    """Where a registry is and how to ask it; `url` may list several, by commas, of which one that answers is asked.

    With `user` and `password` it sends basic authentication, with `token` a bearer token; `ca_file` has the
    certificates that an https registry is checked against. `timeout_s` bounds each request.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | os.PathLike[str] | None = None
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for url in self._urls():
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UserError("a registry's address is http://host:port or https://host:port")
            if parts.username or parts.password:
                raise UserError(
                    "give the registry's user and password apart from its address: Registry(url, user=, password=)"
                )
        if (self.user is None) != (self.password is None):
            raise UserError("a registry's user and password go together")

    def schema_by_id(self, schema_id: int) -> RegisteredSchema:
        """Remembered by every process that asks; so is, for half a minute, that there is none."""
        return _remembered(self, schema_id)

    def latest(self, subject: str) -> RegisteredSchema:
        answer = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/latest")
        return self._read(answer, int(answer.get("id", -1)))

    def id_of(self, subject: str, schema: object, kind: str = "AVRO") -> int:
        """The id of a schema that the subject has."""
        return int(self._ask("POST", f"/subjects/{_quoted(subject)}", _described(schema, kind))["id"])

    def register(self, subject: str, schema: object, kind: str = "AVRO") -> int:
        """Adds a version to the subject, unless it has this schema."""
        return int(self._ask("POST", f"/subjects/{_quoted(subject)}/versions", _described(schema, kind))["id"])

    def fetch(self, schema_id: int) -> RegisteredSchema:
        return self._read(self._ask("GET", f"/schemas/ids/{schema_id}"), schema_id)

    def _read(self, answer: Mapping[str, Any], schema_id: int) -> RegisteredSchema:
        kind = str(answer.get("schemaType") or "AVRO")
        text = answer.get("schema")
        if kind == "PROTOBUF" and isinstance(text, str):
            # Its imports are read with it, and each of them once.
            return RegisteredSchema(schema_id, kind, ProtobufSchema(text, self._imports(answer, {})))
        try:
            schema = json.loads(text) if isinstance(text, str) else None
        except json.JSONDecodeError:
            # Avro's primitive types may be written without quotes.
            schema = text if kind == "AVRO" else None
        if schema is None:
            raise RegistryError(f"the registry's schema {schema_id} is not readable as {kind}")
        if kind == "AVRO":
            named = {name: self._read(found, -1).schema for name, found in self._referenced(answer)}
            schema = with_references(schema, named)
        return RegisteredSchema(schema_id, kind, schema)

    def _imports(self, answer: Mapping[str, Any], found: dict[str, str]) -> dict[str, str]:
        for name, described in self._referenced(answer, besides=found):
            found[name] = str(described.get("schema") or "")
            self._imports(described, found)
        return found

    def _referenced(
        self, answer: Mapping[str, Any], besides: Collection[str] = ()
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for each in answer.get("references") or ():
            if each["name"] not in besides:
                path = f"/subjects/{_quoted(each['subject'])}/versions/{int(each['version'])}"
                yield str(each["name"]), self._ask("GET", path)

    def _urls(self) -> list[str]:
        return [each.strip().rstrip("/") for each in self.url.split(",") if each.strip()] or [""]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """From the first address that answers; a failure is raised if every address failed."""
        problem = "it has no address"
        for attempt in range(_ROUNDS):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            for url in self._urls():
                try:
                    return self._exchange(method, url + path, body)
                except _Unanswered as error:
                    problem = f"{url}: {error}"
        raise RegistryError(f"the schema registry does not answer at {problem}; check its address and that it runs")

    def _exchange(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif self.user is not None:
            secret = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = _MEDIA_TYPE
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with _opener(self.ca_file).open(request, timeout=self.timeout_s) as response:
                text = response.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error, method, url) from None
        except ssl.SSLCertVerificationError as error:
            raise RegistryError(
                f"the registry's certificate is not trusted ({error.verify_message}); give ca_file="
            ) from None
        except (urllib.error.URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise RegistryError(
                    f"the registry's certificate is not trusted ({reason.verify_message}); give ca_file="
                ) from None
            raise _Unanswered(str(reason) or type(reason).__name__) from None
        try:
            answer = json.loads(text)
        except ValueError:
            raise RegistryError(f"{url} does not answer as a schema registry does: no JSON") from None
        if not isinstance(answer, dict):
            raise RegistryError(f"{url} does not answer as a schema registry does: no object")
        return answer


class _Unanswered(Exception):
    """No answer, or one that may be better the next time."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the password to wherever it points."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _opener(ca_file: str | os.PathLike[str] | None) -> urllib.request.OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise UserError(f"cannot read the registry's ca_file {ca_file}: {error.strerror or error}") from None
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())


def _refusal(error: urllib.error.HTTPError, method: str, url: str) -> Exception:
    try:
        said = json.loads(error.read(_MOST_BYTES))
        text = str(said.get("message") or said.get("detail") or said.get("title") or "")
        number = said.get("error_code")
    except (ValueError, AttributeError, OSError):
        text, number = "", None
    detail = f": {text}" if text else ""
    if error.code == 404:
        if isinstance(number, int) and number // 100 == 404:
            return UnknownSchema(f"the registry has nothing at {url} ({method}){detail}")
        # A proxy that lost its registry, or a wrong path. Taken for "no such schema" it would make every record a
        # malformed one.
        return _Unanswered(f"HTTP 404 that is not a schema registry's{detail}")
    if error.code in (401, 403):
        return RegistryError(f"the registry refuses access to {url} ({error.code}){detail}; check user and password")
    if error.code == 409:
        return RegistryError(f"the registry says that the schema is not compatible with the subject's others{detail}")
    if 300 <= error.code < 400:
        return RegistryError(f"the registry redirects {url} elsewhere; give the address that it redirects to")
    if error.code >= 500 or error.code == 429:
        return _Unanswered(f"HTTP {error.code}{detail}")
    return RegistryError(f"the registry refuses {method} {url} ({error.code}){detail}")


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _described(schema: object, kind: str) -> dict[str, Any]:
    # Registries that know Avro alone do not know the member either.
    text = schema if kind == "PROTOBUF" else json.dumps(schema)
    return {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})


def with_references(schema: object, named: Mapping[str, object]) -> object:
    """The schema with the definitions of other subjects put where they are first used."""
    return _Filled(named).filled(schema, "") if named else schema


class _Filled:
    def __init__(self, named: Mapping[str, object]) -> None:
        self._left = dict(named)

    def filled(self, schema: object, space: str) -> object:
        if isinstance(schema, list):
            return [self.filled(each, space) for each in schema]
        if isinstance(schema, str):
            for name in (schema, f"{space}.{schema}"):
                if name in self._left:
                    # Its own namespace, and what it refers to, come along.
                    return self.filled(self._left.pop(name), "")
            return schema
        if not isinstance(schema, Mapping):
            return schema
        inner = str(schema.get("namespace") or str(schema.get("name", "")).rpartition(".")[0] or space)
        made = dict(schema)
        for place in ("type", "items", "values"):
            if place in made:
                made[place] = self.filled(made[place], inner)
        if isinstance(made.get("fields"), list):
            made["fields"] = [self.filled(each, inner) for each in made["fields"]]
        return made


_lock = threading.Lock()
_known: dict[tuple[Registry, int], RegisteredSchema] = {}
_unknown: dict[tuple[Registry, int], tuple[float, str]] = {}


def _remembered(registry: Registry, schema_id: int) -> RegisteredSchema:
    at = (registry, schema_id)
    with _lock:
        if at in _known:
            return _known[at]
        since, message = _unknown.get(at, (0.0, ""))
        if message and time.monotonic() - since < _UNKNOWN_KEPT_S:
            raise UnknownSchema(message)
    try:
        found = registry.fetch(schema_id)
    except UnknownSchema:
        message = f"schema id {schema_id} is not in the registry"
        with _lock:
            _unknown[at] = (time.monotonic(), message)
        raise UnknownSchema(message) from None
    with _lock:
        _known[at] = found
    return found


def forget_schemas() -> None:
    """Ask every registry again for what it was asked before."""
    with _lock:
        _known.clear()
        _unknown.clear()
