"""The quotas that are set, by entity, and which of them holds for a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from braidlog.cluster.image import sanitized
from braidlog.cluster.quota_entities import QuotaEntity, precedence


class AppliedQuota(NamedTuple):
    """A limit, and who shares it: all clients for which this tuple is the same are counted together.

    A part is empty where the quota does not tell clients apart by it: a user's quota is that of all its client ids.
    """

    key: str
    user: str
    client_id: str
    limit: float


class QuotaTable:
    def __init__(self) -> None:
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        return iter(self._quotas.items())

    def set(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> bool:
        """Whether that was a change."""
        if dict(quotas) == self._quotas.get(entity, {}):
            return False
        if quotas:
            self._quotas[entity] = dict(quotas)
        else:
            del self._quotas[entity]
        return True

    def get(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self._quotas.get(entity, {})

    def find(self, key: str, user: str, client_id: str) -> AppliedQuota | None:
        """The quota of a client that is of this user and calls itself so; None where it has none."""
        encoded_user = sanitized(user)
        for entity in precedence(encoded_user, sanitized(client_id)):
            limit = self._quotas.get(entity, {}).get(key)
            if limit is not None:
                return AppliedQuota(
                    key,
                    user if entity.user is not None else "",
                    client_id if entity.client_id is not None else "",
                    limit,
                )
        return None
