"""Decides about client quotas: what they may be set for, and to what (KIP-546, KIP-612).

A user's node holds SCRAM credentials beside its quotas, which stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.quota_entities import (
    CLIENT_QUOTAS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    QUOTAS,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    encoded,
)
from braidlog.cluster.store import Create
from braidlog.controller.plan import Put, Step
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_DOUBLE: Final = "DOUBLE"
# The type of each quota, by Kafka's name for it, and the largest value of whole ones.
_TYPES: Final[dict[str, tuple[str, int]]] = {
    PRODUCER_BYTE_RATE: ("LONG", 2**63 - 1),
    CONSUMER_BYTE_RATE: ("LONG", 2**63 - 1),
    REQUEST_PERCENTAGE: (_DOUBLE, 0),
    CONTROLLER_MUTATION_RATE: (_DOUBLE, 0),
    CONNECTION_CREATION_RATE: ("INT", 2**31 - 1),
}
# A whole number may come as a fraction that is this near to it.
_EPSILON: Final = 1e-6


class QuotaChange(NamedTuple):
    """Without a value the quota is removed."""

    key: str
    value: float | None


class EntityChanges(NamedTuple):
    """By type, the names that make up the entity; None as a name is the default."""

    names: tuple[tuple[str, str | None], ...]
    changes: tuple[QuotaChange, ...]


def entity_named(names: Mapping[str, str | None]) -> QuotaEntity:
    """Raises InvalidRequestError for what is no entity."""
    if not names:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP in names and len(names) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        )
    return QuotaEntity(
        encoded(names[USER]) if USER in names else None,
        encoded(names[CLIENT_ID]) if CLIENT_ID in names else None,
        encoded(names[IP]) if IP in names else None,
    )


def alter(
    current: Mapping[str, Mapping[str, str]], requests: Sequence[EntityChanges], validate_only: bool
) -> tuple[list[Step], list[ProtocolError | None]]:
    """What to write, and what to answer for each entity: all of its changes are made, or none.

    `current` has the overrides of each entity by its path. What is asked for one entity counts for the next requests.
    """
    overrides = dict(current)
    altered: dict[str, None] = {}
    results: list[ProtocolError | None] = []
    for request in requests:
        try:
            entity = entity_named(dict(request.names))
            after = _altered(overrides.get(entity.path, {}), entity, request.changes)
        except ProtocolError as error:
            results.append(error)
            continue
        results.append(None)
        overrides[entity.path] = after
        altered[entity.path] = None
    steps: list[Step] = []
    for path in altered if not validate_only else ():
        steps.append(Put(paths.config(path), records.encode_config(overrides[path])))
        steps.append(Create(paths.CONFIG_CHANGE, records.encode_config_change(path), sequential=True))
    return steps, results


def _altered(current: Mapping[str, str], entity: QuotaEntity, changes: Sequence[QuotaChange]) -> dict[str, str]:
    allowed = CLIENT_QUOTAS if entity.ip is None else (CONNECTION_CREATION_RATE,)
    overrides = dict(current)
    for key, value in changes:
        if value is None:
            if key in QUOTAS:
                # Whatever else lies there is no quota, and stays.
                overrides.pop(key, None)
        elif key not in allowed:
            raise InvalidRequestError(f"Invalid configuration key {key}")
        else:
            overrides[key] = _text(key, value)
    return overrides


def _text(key: str, value: float) -> str:
    """The value as the store has it."""
    kind, most = _TYPES[key]
    if math.isnan(value):
        raise InvalidRequestError(f"Configuration {key} must be a number")
    if kind == _DOUBLE:
        return repr(value)
    # What is beyond the type becomes its largest number, as in Java.
    whole = most if value >= most else -most - 1 if value <= -most - 1 else int(value + _EPSILON)
    if abs(float(whole) - value) > _EPSILON:
        raise InvalidRequestError(f"Configuration {key} must be a {kind} value")
    if key == CONNECTION_CREATION_RATE and whole < 0:
        raise InvalidRequestError(f"Invalid value {whole} for configuration {key}: Value must be at least 0")
    return str(whole)
