"""What handlers ask before they act for a client; decisions are remembered until the rules change.

authorizer.class.name is empty     `Authorizer` itself: everybody may do everything
one of Kafka's two class names     `AclAuthorizer`: the rules in the store decide
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from braidlog.broker.authorization.audit_log import AuditLog, log
from braidlog.core.principal import USER
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.security.acls import (
    CLUSTER_RESOURCE,
    OPERATIONS,
    AclOperation,
    AclResourceType,
    AclRules,
    Resource,
)

# Decisions that are remembered; when there are more, all are forgotten.
_MOST_DECISIONS: Final = 50_000
# A client may ask about names of any length; longer ones are decided about each time.
_LONGEST_NAME: Final = 255


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_ALL_BITS: Final = {resource_type: _bits(operations) for resource_type, operations in OPERATIONS.items()}

# What is answered where a resource of the type is not to be touched.
_REFUSALS: Final[dict[AclResourceType, type[ProtocolError]]] = {
    AclResourceType.TOPIC: TopicAuthorizationFailedError,
    AclResourceType.GROUP: GroupAuthorizationFailedError,
    AclResourceType.CLUSTER: ClusterAuthorizationFailedError,
    AclResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError,
    AclResourceType.USER: DelegationTokenAuthorizationFailedError,
}


# Who (without the type), from where, operation, type and name of the resource; no name: some resource of the type.
_Key: TypeAlias = "tuple[str, str, int, int, str | None]"


class Authorizer:
    """Of a broker without rules: allows everything. `enabled` lets a hot path skip its questions."""

    enabled = False

    def authorize(
        self,
        exchange: Exchange,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        """Whether whoever sent the request may do this; `log_if_denied` is off where a refusal is nobody's fault, as
        when topics are only left out of a list."""
        return True

    def authorize_by_resource_type(
        self, exchange: Exchange, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Whether there may be a resource of this type to which the sender may do this (KIP-679)."""
        return True

    def authorized_operations(self, exchange: Exchange, resource_type: AclResourceType, name: str) -> int:
        """What the sender may do to the resource, as a bit field (KIP-430)."""
        return _ALL_BITS[resource_type]

    # In terms of these:

    def allowed(
        self,
        exchange: Exchange,
        operation: AclOperation,
        resource_type: AclResourceType,
        names: Collection[str],
        *,
        log_if_denied: bool = True,
    ) -> frozenset[str]:
        """Those of the names that the sender may do this to."""
        if not self.enabled:
            return frozenset(names)
        return frozenset(
            name
            for name in dict.fromkeys(names)
            if self.authorize(exchange, operation, resource_type, name, log_if_denied=log_if_denied)
        )

    async def allowed_in_slices(
        self,
        exchange: Exchange,
        operation: AclOperation,
        resource_type: AclResourceType,
        names: Collection[str],
        *,
        log_if_denied: bool = True,
    ) -> frozenset[str]:
        """The same, for requests that may name very many: others are served in between."""
        if not self.enabled:
            return frozenset(names)
        time_slice = TimeSlice()
        allowed: set[str] = set()
        for name in dict.fromkeys(names):
            if self.authorize(exchange, operation, resource_type, name, log_if_denied=log_if_denied):
                allowed.add(name)
            await time_slice.yield_if_over()
        return frozenset(allowed)

    def authorize_cluster(self, exchange: Exchange, operation: AclOperation) -> bool:
        return self.authorize(exchange, operation, CLUSTER_RESOURCE.type, CLUSTER_RESOURCE.name)

    def cluster_operations(self, exchange: Exchange) -> int:
        """What the sender may do to the cluster, as a bit field; nothing is said to who may not describe it."""
        if not self.authorize_cluster(exchange, AclOperation.DESCRIBE):
            return 0
        return self.authorized_operations(exchange, CLUSTER_RESOURCE.type, CLUSTER_RESOURCE.name)

    def check(self, exchange: Exchange, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        """Raises the error that the protocol has for this type of resource."""
        if not self.authorize(exchange, operation, resource_type, name):
            raise refusal(exchange, operation, resource_type, name)

    def check_cluster(self, exchange: Exchange, operation: AclOperation) -> None:
        """Raises ClusterAuthorizationFailedError."""
        self.check(exchange, operation, CLUSTER_RESOURCE.type, CLUSTER_RESOURCE.name)


def refusal(exchange: Exchange, operation: AclOperation, resource_type: AclResourceType, name: str) -> ProtocolError:
    """The error with a message for the client, which knows the name: it sent it."""
    what = "the cluster" if resource_type == AclResourceType.CLUSTER else f"{resource_type.name} {name}"
    return _REFUSALS[resource_type](
        f"{principal_of(exchange)} may not {operation.name} {what}; `braidlog acls explain` says why"
    )


def principal_of(exchange: Exchange) -> str:
    """As rules write it."""
    return f"{USER}:{exchange.channel.principal}"


class AclAuthorizer(Authorizer):
    """Decides by rules that may be replaced at any time, and writes down what it denied."""

    enabled = True

    def __init__(self, rules: AclRules, audit: AuditLog) -> None:
        self._rules = rules
        self._audit = audit
        self._decisions: dict[_Key, bool] = {}
        # For the metrics page.
        self.allowed_count = 0
        self.denied_count = 0

    @property
    def rules(self) -> AclRules:
        return self._rules

    @rules.setter
    def rules(self, rules: AclRules) -> None:
        self._rules = rules
        self._decisions.clear()

    def authorize(
        self,
        exchange: Exchange,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        channel = exchange.channel
        key = (channel.principal, channel.peer_host, int(operation), int(resource_type), name)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decide(key, operation, resource_type, name)
        # All that a decision which is known costs.
        if allowed:
            self.allowed_count += 1
            if log.isEnabledFor(logging.DEBUG):
                self._audit.granted(exchange, principal_of(exchange), operation, resource_type, name)
        elif log_if_denied:
            self.denied_count += 1
            self._audit.denied(exchange, principal_of(exchange), operation, resource_type, name)
        return allowed

    def authorize_by_resource_type(
        self, exchange: Exchange, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        channel = exchange.channel
        key = (channel.principal, channel.peer_host, int(operation), int(resource_type), None)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decide(key, operation, resource_type, None)
        if allowed:
            self.allowed_count += 1
            if log.isEnabledFor(logging.DEBUG):
                self._audit.granted(exchange, principal_of(exchange), operation, resource_type, None)
        else:
            self.denied_count += 1
            self._audit.denied(exchange, principal_of(exchange), operation, resource_type, None)
        return allowed

    def _decide(self, key: _Key, operation: AclOperation, resource_type: AclResourceType, name: str | None) -> bool:
        """By the rules, and remember it; without a name: for some resource of the type."""
        principal, host = f"{USER}:{key[0]}", key[1]
        if name is None:
            allowed = self._rules.decide_by_type(principal, host, operation, resource_type)
        else:
            allowed = self._rules.decide(principal, host, operation, Resource(resource_type, name)).allowed
        if name is None or len(name) <= _LONGEST_NAME:
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            self._decisions[key] = allowed
        return allowed

    def authorized_operations(self, exchange: Exchange, resource_type: AclResourceType, name: str) -> int:
        channel = exchange.channel
        allowed: list[AclOperation] = []
        for operation in OPERATIONS[resource_type]:
            key = (channel.principal, channel.peer_host, int(operation), int(resource_type), name)
            # Neither counted nor logged: nothing is granted by it.
            known = self._decisions.get(key)
            if self._decide(key, operation, resource_type, name) if known is None else known:
                allowed.append(operation)
        return _bits(allowed)
