"""Brokers whose clients may do only what rules allow, and requests of somebody from somewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from braidlog.broker.authorization.audit_log import AuditLog
from braidlog.broker.authorization.authorizer import AclAuthorizer, Authorizer
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.security.acls import CLUSTER_NAME, Acl, AclOperation, AclResourceType, AclRules, Permission
from braidlog.wire.apis import APIS, api_by_name
from support.asked_broker import AskedBroker
from support.authorization_matrix import from_plain, gist

ALICE = "alice"
ADMIN = "admin"
HOST = "192.0.2.1"


class _Soon:
    def call_soon(self, callback: object, *arguments: object) -> None:
        raise AssertionError("nothing is sent")


def authorizer_of(*acls: Acl) -> AclAuthorizer:
    return AclAuthorizer(_rules(acls), _audit_log())


def _rules(acls: Iterable[Acl]) -> AclRules:
    return AclRules(acls, frozenset({f"User:{ADMIN}"}))


def _audit_log() -> AuditLog:
    """One that never comes to counting what it has not written."""
    return AuditLog(lambda delay_s, callback: None)


def exchange_of(principal: str = ALICE, host: str = HOST, api_key: int = 3, version: int = 0) -> Exchange:
    """A request on its way to a handler; it cannot be answered."""
    channel = Channel(FrameHandler(), Round(_Soon()), MemoryBudget(1 << 20), "PLAINTEXT", host)  # type: ignore[arg-type]
    channel.principal = principal
    return Exchange(channel, api_key, version, 1, "test", 0.0)


def allow(resource_type: AclResourceType, name: str, operation: AclOperation, principal: str = ALICE) -> Acl:
    return Acl(resource_type, name, f"User:{principal}", operation)


def deny(resource_type: AclResourceType, name: str, operation: AclOperation, principal: str = ALICE) -> Acl:
    return Acl(resource_type, name, f"User:{principal}", operation, Permission.DENY)


def allow_topic(name: str, operation: AclOperation) -> Acl:
    return allow(AclResourceType.TOPIC, name, operation)


def allow_group(name: str, operation: AclOperation) -> Acl:
    return allow(AclResourceType.GROUP, name, operation)


def allow_cluster(operation: AclOperation) -> Acl:
    return allow(AclResourceType.CLUSTER, CLUSTER_NAME, operation)


class CountingAuthorizer(AclAuthorizer):
    """Notes what it is asked: operation and name."""

    def __init__(self, *acls: Acl) -> None:
        super().__init__(_rules(acls), _audit_log())
        self.asked: list[tuple[AclOperation, str]] = []

    def authorize(
        self,
        exchange: Exchange,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        self.asked.append((operation, name))
        return super().authorize(exchange, operation, resource_type, name, log_if_denied=log_if_denied)


class UnaskedAuthorizer(Authorizer):
    """Of a broker without rules: hot paths must not ask it."""

    def authorize(
        self,
        exchange: Exchange,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        raise AssertionError(f"asked for {operation.name} of {name}")


class RestrictedBroker:
    """A broker that has served nobody yet, from now on with rules: `admin` is a super user, `alice` has none.

    One whose settings ask for an authorizer keeps its own, and has requests about rules.
    """

    def __init__(self, broker: AskedBroker) -> None:
        parts = broker.parts
        if not parts.authorizer.enabled:
            parts.authorizer = parts.produce.authorizer = parts.fetch.authorizer = authorizer_of()
        self.authorizer: AclAuthorizer = parts.authorizer
        self.anonymous = broker
        self.admin = broker.connect_as(ADMIN)
        self.alice = broker.connect_as(ALICE)

    async def ask(self, api: str, version: int, **request: Any) -> str:
        """As alice; the answer's names and errors (see `gist`)."""
        message = from_plain(APIS[api_by_name(api).key].request, request)
        return gist(await self.alice.ask(message, version))

    def rules(self, *acls: Acl) -> None:
        """Instead of those before."""
        self.authorizer.rules = AclRules(acls, self.authorizer.rules.super_users)
