"""Any exception as a protocol error: the peer's fault as it is, the disk's as KAFKA_STORAGE_ERROR, ours logged.

Where the coordination store cannot be reached, the request has timed out.
"""

from __future__ import annotations

import logging

from braidlog.cluster.store import SessionExpiredError, StoreConnectionError, StoreFailedError
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import KafkaStorageError, ProtocolError, RequestTimedOutError, UnknownServerError

log = logging.getLogger("braidlog.broker")


def to_protocol_error(problem: Exception, doing: str) -> ProtocolError:
    """What to answer; `doing` says in the log what failed ("produce to orders-0")."""
    if isinstance(problem, ProtocolError):
        return problem
    if isinstance(problem, StorageFault | StoreFailedError | OSError):
        log.error("%s failed: %s", doing, problem)
        return KafkaStorageError(str(problem))
    if isinstance(problem, StoreConnectionError | SessionExpiredError):
        log.warning("%s failed: %s", doing, problem)
        return RequestTimedOutError(f"the coordination store did not answer; it may have been done: {problem}")
    log.error("%s failed: this is a bug in braidlog, please report it", doing, exc_info=problem)
    return UnknownServerError("the broker met a bug; its log has the details")
