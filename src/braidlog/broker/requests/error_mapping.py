"""Any exception as a protocol error: the peer's fault as it is, the disk's as KAFKA_STORAGE_ERROR, ours logged."""

from __future__ import annotations

import logging

from braidlog.cluster.store import StoreFailedError
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import KafkaStorageError, ProtocolError, UnknownServerError
from braidlog.net.exchange import Exchange
from braidlog.wire.apis import APIS

log = logging.getLogger("braidlog.broker")


def to_protocol_error(problem: Exception, doing: str) -> ProtocolError:
    """What to answer; `doing` says in the log what failed ("produce to orders-0")."""
    if isinstance(problem, ProtocolError):
        return problem
    if isinstance(problem, StorageFault | StoreFailedError | OSError):
        log.error("%s failed: %s", doing, problem)
        return KafkaStorageError(str(problem))
    log.error("%s failed: this is a bug in braidlog, please report it", doing, exc_info=problem)
    return UnknownServerError("the broker met a bug; its log has the details")


def log_error_response(exchange: Exchange, error: ProtocolError) -> None:
    """A request that is refused as a whole leaves a line for whoever looks for the reason."""
    if log.isEnabledFor(logging.DEBUG):
        name, peer = APIS[exchange.api_key].name, exchange.channel.peer_host
        log.debug("refused %s v%d of client %s at %s: %s", name, exchange.version, exchange.client_id, peer, error)
