"""ApiVersions (api 18): which requests this broker answers, in which versions, and its features.

v0–v2   ranges      v3   the client says what software it is; features       v4   zero feature minimums kept
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from braidlog.broker.requests.dispatch import Route
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError, UnsupportedVersionError
from braidlog.net.exchange import Exchange
from braidlog.wire.apis import API_VERSIONS
from braidlog.wire.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    def __init__(self, routes: dict[int, Route], finalises: Callable[[], bool] = lambda: True) -> None:
        self._routes = routes
        # Of all routes, in their order, from the first request on: every client asks for them, and none is added then.
        self._ranges: list[ApiVersion] = []
        # Not while brokers of another kind are in the cluster.
        self._finalises = finalises

    def handle(self, request: ApiVersionsRequest, exchange: Exchange) -> ApiVersionsResponse:
        if exchange.version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                raise InvalidRequestError("client software name and version must be plain words")
            exchange.channel.client_software = name
            exchange.channel.client_software_version = version
        if not self._ranges:
            self._ranges = [_range(route) for _, route in sorted(self._routes.items())]
        response = ApiVersionsResponse(api_keys=self._ranges)
        add_features(response, exchange.version, finalised=self._finalises())
        return response

    def error_response(
        self, request: ApiVersionsRequest | None, version: int, error: ProtocolError
    ) -> ApiVersionsResponse:
        """An unknown version is answered, as by Kafka, only with the known versions of this api (KIP-511)."""
        known = [_range(self._routes[API_VERSIONS])] if error.code == UnsupportedVersionError.code else []
        return ApiVersionsResponse(error_code=error.code, api_keys=known)


def _range(route: Route) -> ApiVersion:
    return ApiVersion(api_key=route.api_key, min_version=route.min_version, max_version=route.max_version)


class Feature(NamedTuple):
    """A protocol whose use clients decide by more than an api's version (KIP-584).

    All are finalised from the first start, where all brokers are ours: nothing older ever reads what they write, and a
    client that does not know them asks in the versions that it knows.
    """

    name: str
    lowest: int
    highest: int
    finalised: int


FEATURES: Final = (
    # 1: the consumer group protocol (KIP-848).
    Feature("group.version", 0, 1, 1),
    # 2: each end of a transaction moves the epoch (KIP-890).
    Feature("transaction.version", 0, 2, 2),
)
FINALISED_EPOCH: Final = 0

# Before v4 a lowest level of 0 cannot be sent: clients took it for an error, so such features are left out (KIP-1022).
_ZERO_FROM: Final = 4
_FEATURES_FROM: Final = 3


def add_features(response: ApiVersionsResponse, version: int, *, finalised: bool = True) -> None:
    if version < _FEATURES_FROM:
        return
    response.supported_features = [
        SupportedFeatureKey(name=feature.name, min_version=feature.lowest, max_version=feature.highest)
        for feature in FEATURES
        if feature.lowest > 0 or version >= _ZERO_FROM
    ]
    response.finalized_features_epoch = FINALISED_EPOCH
    if not finalised:
        return
    response.finalized_features = [
        FinalizedFeatureKey(name=feature.name, max_version_level=feature.finalised, min_version_level=feature.finalised)
        for feature in FEATURES
    ]
