"""Quotas of clients: how much users, client ids and addresses may use (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, ControllerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import mapped
from braidlog.client.broker_errors import broker_error, check
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from braidlog.wire.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49


class QuotaKey(StrEnum):
    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    # Of the time of the broker's threads, in percent.
    REQUEST_PERCENTAGE = "request_percentage"
    # Partitions created and deleted a second.
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    # Of addresses.
    CONNECTION_CREATION_RATE = "connection_creation_rate"


class Default(Enum):
    """In place of a name: what holds for all without a quota of their own."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT


class Anybody(Enum):
    """In a filter in place of a name: every name, and the default."""

    ANYBODY = "anybody"


ANYBODY: Final = Anybody.ANYBODY


class QuotaEntity(NamedTuple):
    """What a quota is for: a user, a client id, a client id of a user, or an address."""

    user: str | Default | None = None
    client_id: str | Default | None = None
    ip: str | Default | None = None

    def __str__(self) -> str:
        named = [
            f"{kind} {'(default)' if name is DEFAULT else name}"
            for kind, name in zip(_KINDS, self, strict=True)
            if name is not None
        ]
        return ", ".join(named) or "no entity"


class QuotaFilter(NamedTuple):
    """Which entities are meant. A kind that is left out matches all, or, with `strict`, entities without it."""

    user: str | Default | Anybody | None = None
    client_id: str | Default | Anybody | None = None
    ip: str | Default | Anybody | None = None
    strict: bool = False


_KINDS: Final = ("user", "client-id", "ip")
_EXACT: Final = 0
_MATCH_DEFAULT: Final = 1
_MATCH_ANY: Final = 2


def describe_client_quotas(
    driver: AdminApiDriver, which: QuotaFilter | None = None
) -> dict[QuotaEntity, dict[str, float]]:
    wanted = which or QuotaFilter()
    components = [_component(kind, name) for kind, name in zip(_KINDS, wanted[:3], strict=True) if name is not None]
    request = DescribeClientQuotasRequest(components=components, strict=wanted.strict)

    async def describe(node: BrokerConnection) -> dict[QuotaEntity, dict[str, float]]:
        answer = await node.call(DESCRIBE_CLIENT_QUOTAS, request, DescribeClientQuotasResponse)
        check(answer.error_code, "client quotas", answer.error_message)
        return {
            _entity((each.entity_type, each.entity_name) for each in entry.entity): {
                value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)
            }
            for entry in answer.entries or ()
        }

    return driver.ask_one(AnyBrokerStrategy(), describe)


def alter_client_quotas(
    driver: AdminApiDriver, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
) -> Results[QuotaEntity, None]:
    given = mapped(changes, "changes", '{QuotaEntity(user="ann"): {"producer_byte_rate": 1e6}}')
    for entity, values in given.items():
        if not any(name is not None for name in entity):
            raise UserError("a quota needs an entity: give a user, a client id, an address, or DEFAULT for one")
        if not values:
            raise UserError(f"{entity}: nothing to change; give at least one quota")

    async def alter(node: BrokerConnection, some: list[QuotaEntity]) -> dict[QuotaEntity, ProtocolError | None]:
        request = AlterClientQuotasRequest(
            entries=[_entry(each, changes[each]) for each in some], validate_only=validate_only
        )
        found: dict[QuotaEntity, ProtocolError | None] = {}
        for answer in (await node.call(ALTER_CLIENT_QUOTAS, request, AlterClientQuotasResponse)).entries:
            entity = _entity((each.entity_type, each.entity_name) for each in answer.entity)
            failed = answer.error_code != NONE
            found[entity] = broker_error(answer.error_code, str(entity), answer.error_message) if failed else None
        return found

    return driver.ask(changes, ControllerStrategy(), alter)


def _component(kind: str, name: str | Default | Anybody) -> ComponentData:
    if isinstance(name, str):
        return ComponentData(entity_type=kind, match_type=_EXACT, match=name)
    return ComponentData(entity_type=kind, match_type=_MATCH_DEFAULT if name is DEFAULT else _MATCH_ANY, match=None)


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """An entity without a name is the default."""
    names: dict[str, str | Default] = {kind: DEFAULT if name is None else name for kind, name in parts}
    return QuotaEntity(*(names.get(kind) for kind in _KINDS))


def _entry(entity: QuotaEntity, values: Mapping[str, float | None]) -> RequestEntryData:
    return RequestEntryData(
        entity=[
            RequestEntityData(entity_type=kind, entity_name=name if isinstance(name, str) else None)
            for kind, name in zip(_KINDS, entity, strict=True)
            if name is not None
        ],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
