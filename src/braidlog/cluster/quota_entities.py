"""What client quotas are set for, and the names that the store has for it (KIP-546, KIP-612).

    /config/users/U/clients/C    /config/users/U    /config/clients/C    /config/ips/I

A name in a path is percent-encoded, and `<default>`, which no encoded name can be, stands for all that have nothing of
their own. Overrides of users hold SCRAM credentials beside quotas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from braidlog.cluster.image import DEFAULT_ENTITY, desanitized, sanitized

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# Of users and client ids.
CLIENT_QUOTAS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
QUOTAS: Final = (*CLIENT_QUOTAS, CONNECTION_CREATION_RATE)

_USERS: Final = "users"
_CLIENTS: Final = "clients"
_IPS: Final = "ips"


class QuotaEntity(NamedTuple):
    """Names as paths have them: encoded, or `<default>`; None where the entity has no part of that type."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def path(self) -> str:
        """Below /config."""
        if self.ip is not None:
            return f"{_IPS}/{self.ip}"
        if self.user is None:
            return f"{_CLIENTS}/{self.client_id}"
        if self.client_id is None:
            return f"{_USERS}/{self.user}"
        return f"{_USERS}/{self.user}/{_CLIENTS}/{self.client_id}"


def entity_of(path: str) -> QuotaEntity | None:
    """The entity whose overrides lie at the path below /config; None where no quotas can be there."""
    kind, *names = path.split("/")
    match kind, names:
        case "users", [user]:
            return QuotaEntity(user=user)
        case "users", [user, "clients", client_id]:
            return QuotaEntity(user=user, client_id=client_id)
        case "clients", [client_id]:
            return QuotaEntity(client_id=client_id)
        case "ips", [ip]:
            return QuotaEntity(ip=ip)
    return None


def encoded(name: str | None) -> str:
    """A name as a path has it; None is the default."""
    return DEFAULT_ENTITY if name is None else sanitized(name)


def decoded(name: str) -> str | None:
    return None if name == DEFAULT_ENTITY else desanitized(name)


def quotas_in(overrides: Mapping[str, str], keys: tuple[str, ...] = QUOTAS) -> dict[str, float]:
    """Those of the overrides that are quotas; what is no number is none."""
    found: dict[str, float] = {}
    for key in keys:
        value = overrides.get(key)
        if value is not None:
            try:
                number = float(value)
            except ValueError:
                continue
            if not math.isnan(number):
                found[key] = number
    return found


def precedence(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """Where to look for the quota of a client, by encoded names: the first that has one decides."""
    for named in (user, DEFAULT_ENTITY):
        yield QuotaEntity(user=named, client_id=client_id)
        yield QuotaEntity(user=named, client_id=DEFAULT_ENTITY)
        yield QuotaEntity(user=named)
    yield QuotaEntity(client_id=client_id)
    yield QuotaEntity(client_id=DEFAULT_ENTITY)
