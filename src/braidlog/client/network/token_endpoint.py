"""Tokens from an authorization server with client credentials (KIP-768, RFC 6749 part 4.4), or from a file.

sasl.oauthbearer.token.endpoint.url=https://idp.example.com/oauth2/token      or file:///run/secrets/token
sasl.jaas.config=…OAuthBearerLoginModule required clientId="…" clientSecret="…" scope="…" extension_<name>="…";
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final

from braidlog.client.errors import AuthenticationFailed, NoConnection
from braidlog.client.settings import Settings
from braidlog.core.errors import UserError
from braidlog.security.credentials import BearerToken
from braidlog.security.login import as_token

_DEFAULT_TIMEOUT_S: Final = 10.0
# Too slow, or too often: it may do so a moment later.
_LATER: Final = (408, 429)
_LARGEST_ANSWER: Final = 1 << 20
_EXTENSION: Final = "extension_"
# A token that is about to expire is not handed out again.
_SHORTEST_LIFE_S: Final = 1.0

Endpoint = Callable[[Mapping[str, str]], BearerToken]


def endpoint_for(settings: Settings, url: str) -> Endpoint:
    """Asks the endpoint for a token, and again when `sasl.login.refresh.window.factor` of its life is over."""
    if not url.startswith(("https://", "http://", "file://")):
        raise UserError(f"sasl.oauthbearer.token.endpoint.url: {url} is neither https:// nor file://")
    factor = float(settings.value("sasl.login.refresh.window.factor"))
    read_ms = settings.value("sasl.login.read.timeout.ms")
    timeout_s = read_ms / 1000.0 if read_ms else _DEFAULT_TIMEOUT_S
    encodes = settings.flag("sasl.oauthbearer.header.urlencode")
    return _Kept(lambda options: fetch_token(url, options, timeout_s, encodes=encodes), factor).token


class _Kept:
    """The token of before, as long as it is young."""

    def __init__(self, fetch: Endpoint, factor: float, clock: Callable[[], float] = time.time) -> None:
        self._fetch = fetch
        self._factor = factor
        self._clock = clock
        self._token: BearerToken | None = None
        self._until = 0.0

    def token(self, options: Mapping[str, str]) -> BearerToken:
        now = self._clock()
        if self._token is None or now >= self._until:
            self._token = self._fetch(options)
            expires_ms = self._token.expires_ms
            life_s = (expires_ms / 1000.0 - now) * self._factor if expires_ms is not None else 0.0
            self._until = now + life_s if life_s >= _SHORTEST_LIFE_S else 0.0
        return self._token


def fetch_token(url: str, options: Mapping[str, str], timeout_s: float, *, encodes: bool = False) -> BearerToken:
    # Only who logs in like this pays for the import.
    from urllib.error import HTTPError, URLError
    from urllib.parse import quote_plus, urlencode
    from urllib.request import Request, urlopen

    request = Request(url)
    if not url.startswith("file:"):
        client, secret = options.get("clientId"), options.get("clientSecret")
        if not client or not secret:
            raise UserError("sasl.oauthbearer.token.endpoint.url needs clientId and clientSecret in sasl.jaas.config")
        if encodes:
            client, secret = quote_plus(client), quote_plus(secret)
        form = {"grant_type": "client_credentials"}
        if options.get("scope"):
            form["scope"] = options["scope"]
        request = Request(url, urlencode(form).encode(), method="POST")
        request.add_header("Authorization", f"Basic {b64encode(f'{client}:{secret}'.encode()).decode()}")
        request.add_header("Accept", "application/json")
    try:
        with urlopen(request, timeout=timeout_s) as answer:
            body = answer.read(_LARGEST_ANSWER)
    except HTTPError as problem:
        problem.close()
        if problem.code >= 500 or problem.code in _LATER:
            raise NoConnection(f"the token endpoint {url} has none now ({problem.code} {problem.reason})") from problem
        raise AuthenticationFailed(
            f"the token endpoint {url} refused ({problem.code} {problem.reason}); "
            "check clientId, clientSecret and scope"
        ) from problem
    except (URLError, OSError) as problem:
        raise NoConnection(f"the token endpoint {url} cannot be reached ({problem})") from problem
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    token = as_token(_token_in(url, body))
    return BearerToken(token.value, token.expires_ms, token.principal, extensions)


def _token_in(url: str, body: bytes) -> object:
    """A file holds the token itself; an endpoint answers with JSON."""
    text = body.decode("latin-1").strip()
    if url.startswith("file:"):
        return text
    try:
        answer = json.loads(text)
        value = answer["access_token"]
    except (ValueError, KeyError, TypeError) as problem:
        raise AuthenticationFailed(f"the token endpoint {url} answered without an access_token") from problem
    token = as_token(value)
    if token.expires_ms is None and isinstance(answer.get("expires_in"), int | float):
        return value, time.time() + float(answer["expires_in"])
    return token
