"""Tokens from an authorization server on loopback, and from a file."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from braidlog.client.errors import AuthenticationFailed, NoConnection
from braidlog.client.network.token_endpoint import _Kept, endpoint_for, fetch_token
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.errors import UserError
from braidlog.security.credentials import BearerToken

CLIENT = {"clientId": "me", "clientSecret": "s3cret", "scope": "kafka", "extension_traceId": "7"}


class Issuer(HTTPServer):
    """Remembers what it was asked, and answers what a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.code = 200
        self.body = json.dumps({"access_token": "t0ken", "expires_in": 60, "token_type": "Bearer"})
        self.asked: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append({"login": self.headers["Authorization"], **parse_qs(form)})
        self.send_response(self.server.code)
        self.end_headers()
        self.wfile.write(self.server.body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_client_credentials(issuer: Issuer) -> None:
    token = fetch_token(issuer.url, CLIENT, 5.0)
    assert token.value == "t0ken"
    assert token.extensions == {"traceId": "7"}
    assert token.expires_ms is not None
    login = f"Basic {b64encode(b'me:s3cret').decode()}"
    assert issuer.asked == [{"login": login, "grant_type": ["client_credentials"], "scope": ["kafka"]}]


def test_what_can_go_wrong(issuer: Issuer) -> None:
    issuer.body = "{}"
    with pytest.raises(AuthenticationFailed, match="without an access_token"):
        fetch_token(issuer.url, CLIENT, 5.0)
    issuer.code = 401
    with pytest.raises(AuthenticationFailed, match=r"refused .401.*check clientId") as caught:
        fetch_token(issuer.url, CLIENT, 5.0)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(NoConnection, match="cannot be reached"):
        fetch_token("http://127.0.0.1:1/token", CLIENT, 5.0)
    with pytest.raises(UserError, match="clientId and clientSecret"):
        fetch_token(issuer.url, {}, 5.0)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("t0ken\n")
    settings = Settings.of(ADMIN)
    assert endpoint_for(settings, path.as_uri())({}).value == "t0ken"
    with pytest.raises(UserError, match="neither https:// nor file://"):
        endpoint_for(settings, "ftp://x")


def test_a_token_is_kept_while_it_is_young() -> None:
    now = [1000.0]
    fetched: list[float] = []

    def fetch(_: Any) -> BearerToken:
        fetched.append(now[0])
        return BearerToken("t0ken", round((now[0] + 100) * 1000))

    kept = _Kept(fetch, 0.8, lambda: now[0])
    for at in (1000.0, 1079.0, 1080.0, 1081.0):
        now[0] = at
        kept.token({})
    assert fetched == [1000.0, 1080.0]


@pytest.mark.parametrize("code", [429, 500, 503])
def test_an_endpoint_that_is_out_of_order_is_asked_again_later(issuer: Issuer, code: int) -> None:
    issuer.code = code
    with pytest.raises(NoConnection, match=str(code)) as caught:
        fetch_token(issuer.url, CLIENT, 5.0)
    assert caught.value.retriable
    assert "s3cret" not in str(caught.value)


def test_names_and_secrets_are_url_encoded_where_that_is_set(issuer: Issuer) -> None:
    options = {"clientId": "me & you", "clientSecret": "a:b"}
    settings = Settings.of(ADMIN, None, {"sasl_oauthbearer_header_urlencode": True})
    endpoint_for(settings, issuer.url)(options)
    endpoint_for(Settings.of(ADMIN), issuer.url)(options)
    logins = [each["login"].removeprefix("Basic ") for each in issuer.asked]
    assert logins == [b64encode(login).decode() for login in (b"me+%26+you:a%3Ab", b"me & you:a:b")]
