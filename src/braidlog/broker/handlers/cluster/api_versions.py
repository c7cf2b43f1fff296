"""ApiVersions (api 18): which requests this broker answers, in which versions, and its features.

v0–v2   ranges      v3   the client says what software it is; features       v4   zero feature minimums kept
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from braidlog.broker.requests.dispatch import Route
from braidlog.cluster.features import FEATURES, NEWEST
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError, UnsupportedVersionError
from braidlog.net.exchange import Exchange
from braidlog.wire.apis import API_VERSIONS
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# Only where its feature is finalised is the newer group protocol there at all: a client that sees these apis uses it.
_OF_GROUP_VERSION: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    def __init__(
        self,
        routes: dict[int, Route],
        finalized: Callable[[], tuple[Mapping[str, int], int]] = lambda: (NEWEST, 0),
        serves_consumer_protocol: Callable[[], bool] = lambda: True,
    ) -> None:
        """`finalized` gives levels and their epoch: none while brokers of another kind are in the cluster."""
        self._routes = routes
        # Of all routes, in their order, from the first request on: every client asks for them, and none is added then.
        self._ranges: list[ApiVersion] = []
        self._without_group_version: list[ApiVersion] = []
        self._finalized = finalized
        self._serves_consumer_protocol = serves_consumer_protocol

    def handle(self, request: ApiVersionsRequest, exchange: Exchange) -> ApiVersionsResponse:
        if exchange.version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                raise InvalidRequestError("client software name and version must be plain words")
            exchange.channel.client_software = name
            exchange.channel.client_software_version = version
        if not self._ranges:
            self._ranges = [_range(route) for _, route in sorted(self._routes.items())]
            self._without_group_version = [each for each in self._ranges if each.api_key not in _OF_GROUP_VERSION]
        ranges = self._ranges if self._serves_consumer_protocol() else self._without_group_version
        response = ApiVersionsResponse(api_keys=ranges)
        add_features(response, exchange.version, *self._finalized())
        return response

    def error_response(
        self, request: ApiVersionsRequest | None, version: int, error: ProtocolError
    ) -> ApiVersionsResponse:
        """An unknown version is answered, as by Kafka, only with the known versions of this api (KIP-511)."""
        known = [_range(self._routes[API_VERSIONS])] if error.code == UnsupportedVersionError.code else []
        return ApiVersionsResponse(error_code=error.code, api_keys=known)


def _range(route: Route) -> ApiVersion:
    return ApiVersion(api_key=route.api_key, min_version=route.min_version, max_version=route.max_version)


# Before v4 a lowest level of 0 cannot be sent: clients took it for an error, so such features are left out (KIP-1022).
_ZERO_FROM: Final = 4
_FEATURES_FROM: Final = 3


def add_features(response: ApiVersionsResponse, version: int, finalized: Mapping[str, int], epoch: int) -> None:
    if version < _FEATURES_FROM:
        return
    response.supported_features = [
        SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
        for feature in FEATURES
        if feature.lowest > 0 or version >= _ZERO_FROM
    ]
    response.finalized_features_epoch = epoch
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in finalized.items()
    ]
