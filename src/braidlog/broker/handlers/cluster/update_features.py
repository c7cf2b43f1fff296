"""UpdateFeatures (api 57): change the finalised levels of features (KIP-584); the controller alone does it.

v0   a downgrade has to be allowed    v1   kinds of downgrades; may only check    v2   all or none
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.feature_updates import FeatureUpdates
from braidlog.controller.features import FeatureUpdate, UpgradeType
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_KINDS_FROM: Final = 1
_ALL_OR_NONE_FROM: Final = 2


class UpdateFeaturesHandler:
    def __init__(self, updates: FeatureUpdates, authorizer: Authorizer) -> None:
        self._updates = updates
        self._authorizer = authorizer

    async def handle(self, request: UpdateFeaturesRequest, exchange: Exchange) -> UpdateFeaturesResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
        version = exchange.version
        results = await self._updates.update(
            [
                FeatureUpdate(each.feature, each.max_version_level, _kind(each, version))
                for each in request.feature_updates
            ],
            validate_only=request.validate_only,
            all_or_none=version >= _ALL_OR_NONE_FROM,
            timeout_ms=request.timeout_ms,
        )
        response = UpdateFeaturesResponse(error_message=None)
        if version < _ALL_OR_NONE_FROM:
            response.results = [_result(name, error) for name, error in results.items()]
        return response

    @staticmethod
    def error_response(request: UpdateFeaturesRequest, version: int, error: ProtocolError) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


def _kind(update: FeatureUpdateKey, version: int) -> int:
    if version >= _KINDS_FROM:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def _result(name: str, error: ProtocolError | None) -> UpdatableFeatureResult:
    if error is None:
        return UpdatableFeatureResult(feature=name, error_code=NONE, error_message=None)
    return UpdatableFeatureResult(feature=name, error_code=error.code, error_message=error.message)
