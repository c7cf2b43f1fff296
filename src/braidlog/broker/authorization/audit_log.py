"""What was denied, and at DEBUG what was granted: a line each, by a logger of its own (`braidlog.authorizer`).

    Principal = User:bob is Denied Operation = Write from host = 10.0.0.7 on resource = Topic:LITERAL:orders
    for request = PRODUCE                                                             (in one line, Kafka's words)

A client that is denied something tries again, often at once. Of what is denied within ten seconds the first of each
kind is a line, for up to a hundred kinds; how often the same was denied since, and how much else was, is said when
those seconds are over. So a client cannot fill a disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType, written
from braidlog.wire.generated.api_keys import ApiKey

log = logging.getLogger("braidlog.authorizer")

PERIOD_S: Final = 10.0
MOST_KINDS: Final = 100
# No topic's name is longer; a group's may be.
_LONGEST_PATTERN: Final = 265

# Principal, host, operation, resource, api.
_Kind: TypeAlias = "tuple[str, str, int, str, int]"


class AuditLog:
    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._call_later = call_later
        # What was denied in this period and has its line -> how often since.
        self._repeated: dict[_Kind, int] = {}
        self._others = 0

    def granted(
        self,
        exchange: Exchange,
        principal: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str | None,
    ) -> None:
        """Without a name: to some resource of the type."""
        _write(logging.DEBUG, "Allowed", _kind(exchange, principal, operation, resource_type, name))

    def denied(
        self,
        exchange: Exchange,
        principal: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str | None,
    ) -> None:
        """Without a name: to every resource of the type."""
        kind = _kind(exchange, principal, operation, resource_type, name)
        if kind in self._repeated:
            self._repeated[kind] += 1
        elif len(self._repeated) >= MOST_KINDS:
            self._others += 1
        else:
            if not self._repeated:
                self._call_later(PERIOD_S, self._end_period)
            self._repeated[kind] = 0
            _write(logging.INFO, "Denied", kind)

    def _end_period(self) -> None:
        for kind, times in self._repeated.items():
            if times:
                _write(logging.INFO, "Denied", kind, times)
        if self._others:
            log.info("%d more denials in the last %.0f s, of other kinds", self._others, PERIOD_S)
        self._repeated = {}
        self._others = 0


def _kind(
    exchange: Exchange, principal: str, operation: AclOperation, resource_type: AclResourceType, name: str | None
) -> _Kind:
    pattern = "UNKNOWN:NONE" if name is None else f"LITERAL:{name}"
    if len(pattern) > _LONGEST_PATTERN:
        pattern = f"{pattern[:_LONGEST_PATTERN]}…"
    resource = f"{written(resource_type)}:{pattern}"
    return (principal, exchange.channel.peer_host, int(operation), resource, exchange.api_key)


def _write(level: int, result: str, kind: _Kind, times: int = 0) -> None:
    principal, host, operation, resource, api_key = kind
    fields: dict[str, Any] = {
        "principal": principal,
        "result": result,
        "operation": written(AclOperation(operation)),
        "host": host,
        "resource": resource,
        "request": ApiKey(api_key).name,
    }
    again = ""
    if times:
        fields["repeated"] = times
        again = f", {times} more times in the last {PERIOD_S:.0f} s"
    log.log(
        level,
        "Principal = %s is %s Operation = %s from host = %s on resource = %s for request = %s%s",
        principal,
        result,
        fields["operation"],
        host,
        resource,
        fields["request"],
        again,
        # Of their own in the form for collectors.
        extra={"fields": fields},
    )
