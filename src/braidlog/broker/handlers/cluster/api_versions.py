"""ApiVersions (api 18): which requests this broker answers, in which versions, and its features.

v0–v2   ranges      v3   the client says what software it is; features       v4   zero feature minimums kept
"""

from __future__ import annotations

import re
from typing import Final

from braidlog.broker.handlers.cluster.features import add_features
from braidlog.broker.requests.dispatch import Route
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError, UnsupportedVersionError
from braidlog.net.exchange import Exchange
from braidlog.wire.apis import API_VERSIONS
from braidlog.wire.generated.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    def __init__(self, routes: dict[int, Route]) -> None:
        self._routes = routes

    def handle(self, request: ApiVersionsRequest, exchange: Exchange) -> ApiVersionsResponse:
        if exchange.version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                raise InvalidRequestError("client software name and version must be plain words")
            exchange.channel.client_software = name
            exchange.channel.client_software_version = version
        response = ApiVersionsResponse(api_keys=[_range(route) for _, route in sorted(self._routes.items())])
        add_features(response, exchange.version)
        return response

    def error_response(
        self, request: ApiVersionsRequest | None, version: int, error: ProtocolError
    ) -> ApiVersionsResponse:
        """An unknown version is answered, as by Kafka, only with the known versions of this api (KIP-511)."""
        known = [_range(self._routes[API_VERSIONS])] if error.code == UnsupportedVersionError.code else []
        return ApiVersionsResponse(error_code=error.code, api_keys=known)


def _range(route: Route) -> ApiVersion:
    return ApiVersion(api_key=route.api_key, min_version=route.min_version, max_version=route.max_version)
