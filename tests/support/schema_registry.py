"""A schema registry in the test's process: what the pipeline asks of one, as the real ones answer it.

`tests/spark/test_spark_pipeline_registry.py` runs the same scenarios against this and against Apicurio Registry, so
that neither says what the other does not.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from braidlog.client.schema_registry import registry

Described = Mapping[str, Any]


@dataclass
class Contents:
    """Schemas by id, and the ids of each subject's versions."""

    schemas: dict[int, Described] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    # Answers that are given before any other: (status, body).
    troubles: list[tuple[int, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def id_of(self, described: Described) -> int | None:
        wanted = _canonical(described)
        return next((number for number, each in self.schemas.items() if _canonical(each) == wanted), None)

    def register(self, subject: str, described: Described) -> int:
        number = self.id_of(described)
        if number is None:
            number = len(self.schemas) + 1
            self.schemas[number] = described
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def version(self, subject: str, version: str) -> Described:
        versions = self.subjects.get(subject)
        if versions is None:
            raise _Missing(40401, f"Subject '{subject}' not found.")
        place = len(versions) if version == "latest" else int(version)
        if not 1 <= place <= len(versions):
            raise _Missing(40402, f"Version {version} not found.")
        number = versions[place - 1]
        return {"subject": subject, "version": place, "id": number, **self.schemas[number]}


class _Missing(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class RunningRegistry:
    url: str
    contents: Contents


@contextmanager
def running_registry(
    *, user: str | None = None, password: str | None = None, tls: tuple[Path, Path] | None = None
) -> Iterator[RunningRegistry]:
    """On loopback; `tls` is the server's certificate and key."""
    # Its port may be one of an earlier registry, whose schemas this process remembers.
    registry.forget_schemas()
    contents = Contents()
    expected = None if user is None else "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(contents, expected))
    scheme = "http"
    if tls is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="schema registry", daemon=True)
    thread.start()
    try:
        yield RunningRegistry(f"{scheme}://127.0.0.1:{server.server_port}", contents)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def _handler(contents: Contents, authorization: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Described | None) -> None:
            if authorization is not None and self.headers.get("Authorization") != authorization:
                return self._send(401, {"error_code": 401, "message": "Unauthorized"})
            with contents.lock:
                contents.requests.append(f"{self.command} {self.path}")
                if contents.troubles:
                    status, text = contents.troubles.pop(0)
                    return self._send_bytes(status, text.encode())
                try:
                    found = _routed(contents, self.command, self.path, body)
                except _Missing as error:
                    return self._send(404, {"error_code": error.code, "message": str(error)})
            self._send(200, found)

        def _send(self, status: int, body: Described) -> None:
            self._send_bytes(status, json.dumps(body).encode())

        def _send_bytes(self, status: int, data: bytes) -> None:
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", data.decode())
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler


def _routed(contents: Contents, method: str, path: str, body: Described | None) -> Described:
    # What clients ask for with it (format=serialized, normalize) changes nothing here, as with Apicurio.
    path = path.partition("?")[0]
    if method == "GET":
        found = re.fullmatch(r"/schemas/ids/(\d+)", path)
        if found:
            number = int(found[1])
            if number not in contents.schemas:
                raise _Missing(40403, f"Schema {number} not found.")
            return contents.schemas[number]
        found = re.fullmatch(r"/subjects/([^/]+)/versions/([^/]+)", path)
        if found:
            return contents.version(unquote(found[1]), found[2])
    elif body is not None:
        found = re.fullmatch(r"/subjects/([^/]+)(/versions)?", path)
        if found and found[2]:
            return {"id": contents.register(unquote(found[1]), body)}
        if found:
            subject, known = unquote(found[1]), contents.id_of(body)
            if subject not in contents.subjects:
                raise _Missing(40401, f"Subject '{subject}' not found.")
            if known is None or known not in contents.subjects[subject]:
                raise _Missing(40403, "Schema not found")
            version = contents.subjects[subject].index(known) + 1
            return contents.version(subject, str(version))
    raise _Missing(404, "HTTP 404 Not Found")


def _canonical(described: Described) -> str:
    kind, text = described.get("schemaType") or "AVRO", described["schema"]
    # Protobuf is kept as it came, text or descriptor in base64, as Apicurio keeps it.
    schema = text if kind == "PROTOBUF" else json.loads(text)
    return json.dumps([kind, schema, described.get("references") or []], sort_keys=True)
