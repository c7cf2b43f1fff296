"""DescribeClientQuotas (api 48) and AlterClientQuotas (api 49), KIP-546."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.config_changes import ConfigChangeListener
from braidlog.broker.handlers.store_problems import told_to_client
from braidlog.broker.quotas.quota_table import QuotaTable
from braidlog.cluster.quota_entities import CLIENT_QUOTAS, CONNECTION_CREATION_RATE, QuotaEntity, decoded, encoded
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.users.client_quotas import CLIENT_ID, IP, USER, EntityChanges, QuotaChange
from braidlog.core.protocol_errors import (
    NONE,
    InvalidRequestError,
    ProtocolError,
    UnsupportedVersionError,
)
from braidlog.net.connection_quotas import host_addresses, is_address
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)
from braidlog.wire.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

# How a filter's component matches names.
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2

_KINDS: Final = (USER, CLIENT_ID, IP)
_SHORT: Final = {USER: "user", CLIENT_ID: "client", IP: "ip"}


class DescribeClientQuotasHandler:
    """Answers from what this broker has read of the store."""

    def __init__(self, table: QuotaTable, authorizer: Authorizer) -> None:
        self._table = table
        self._authorizer = authorizer

    def handle(self, request: DescribeClientQuotasRequest, exchange: Exchange) -> DescribeClientQuotasResponse:
        self._authorizer.check_cluster(exchange, AclOperation.DESCRIBE_CONFIGS)
        wanted = _components(request.components)
        entries: list[EntryData] = []
        for entity, quotas in self._table:
            if _matches(wanted, entity, request.strict):
                keys = CLIENT_QUOTAS if entity.ip is None else (CONNECTION_CREATION_RATE,)
                values = [ValueData(key=key, value=quotas[key]) for key in keys if key in quotas]
                if values:
                    entries.append(EntryData(entity=_described(entity), values=values))
        return DescribeClientQuotasResponse(error_message=None, entries=entries)

    @staticmethod
    def error_response(
        request: DescribeClientQuotasRequest, version: int, error: ProtocolError
    ) -> DescribeClientQuotasResponse:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


def _components(components: list[ComponentData]) -> dict[str, str | None]:
    """By type the encoded name that is asked for, None for any."""
    wanted: dict[str, str | None] = {}
    for component in components:
        kind = component.entity_type
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidRequestError(f"Unknown match type {component.match_type}")
        if (component.match_type == _EXACT) != (component.match is not None):
            raise InvalidRequestError("a component that matches a name has to have one, and no other component may")
        name = None if component.match_type == _ANY else encoded(component.match)
        if kind == "":
            raise InvalidRequestError("Unexpected empty filter component entity type")
        if kind not in _KINDS:
            raise UnsupportedVersionError(f"Custom entity type '{kind}' not supported")
        if kind in wanted:
            raise InvalidRequestError(f"Duplicate {_SHORT[kind]} filter component entity type")
        wanted[kind] = name
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component."
        )
    return wanted


def _matches(wanted: Mapping[str, str | None], entity: QuotaEntity, strict: bool) -> bool:
    for kind, name in zip(_KINDS, entity, strict=True):
        if kind not in wanted:
            if strict and name is not None:
                return False
        elif name is None or wanted[kind] not in (None, name):
            return False
    return True


def _described(entity: QuotaEntity) -> list[EntityData]:
    return [
        EntityData(entity_type=kind, entity_name=decoded(name))
        for kind, name in zip(_KINDS, entity, strict=True)
        if name is not None
    ]


class AlterClientQuotasHandler:
    """Any broker may write them: a client need not ask the controller, though Kafka's do."""

    def __init__(
        self,
        direct_writes: DirectWrites,
        config_changes: ConfigChangeListener,
        authorizer: Authorizer,
        look_up_in: Callable[[], Executor],
    ) -> None:
        """`look_up_in` gives what names of hosts are looked up in: that takes as long as the name server likes."""
        self._direct_writes = direct_writes
        self._config_changes = config_changes
        self._authorizer = authorizer
        self._look_up_in = look_up_in

    async def handle(self, request: AlterClientQuotasRequest, exchange: Exchange) -> AlterClientQuotasResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER_CONFIGS)
        results: dict[frozenset[tuple[str, str | None]], ProtocolError | None] = {}
        wanted: list[EntityChanges] = []
        for entry in request.entries:
            names = {each.entity_type: each.entity_name for each in entry.entity}
            changes = tuple(QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops)
            refused = await self._unknown_host(names)
            results[frozenset(names.items())] = refused
            if refused is None:
                wanted.append(EntityChanges(tuple(names.items()), changes))
        with told_to_client():
            errors = await self._direct_writes.alter_client_quotas(wanted, request.validate_only)
            # Whoever asks this broker next sees what was changed.
            await self._config_changes.catch_up()
        for changed, error in zip(wanted, errors, strict=True):
            results[frozenset(changed.names)] = error
        return AlterClientQuotasResponse(entries=[_result(dict(names), error) for names, error in results.items()])

    async def _unknown_host(self, names: Mapping[str, str | None]) -> ProtocolError | None:
        host = names.get(IP)
        if not host or len(names) > 1 or is_address(host):
            return None
        try:
            await asyncio.get_running_loop().run_in_executor(self._look_up_in(), host_addresses, host)
        except (OSError, UnicodeError):
            return InvalidRequestError(f"{host} is not a valid IP or resolvable host.")
        return None

    @staticmethod
    def error_response(
        request: AlterClientQuotasRequest, version: int, error: ProtocolError
    ) -> AlterClientQuotasResponse:
        return AlterClientQuotasResponse(
            entries=[
                _result({each.entity_type: each.entity_name for each in entry.entity}, error)
                for entry in request.entries
            ]
        )


def _result(names: Mapping[str, str | None], error: ProtocolError | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[ResponseEntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
    )
