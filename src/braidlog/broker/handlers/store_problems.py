"""What a client is told where the coordination store fails while its request is served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.cluster.store import SessionExpiredError, StoreConnectionError, StoreError, StoreFailedError
from braidlog.controller.active_controller import as_protocol_error
from braidlog.core.protocol_errors import RequestTimedOutError


@contextmanager
def told_to_client() -> Iterator[None]:
    """Problems of the store leave this as errors of the protocol."""
    try:
        yield
    except (StoreError, StoreConnectionError, StoreFailedError) as problem:
        raise as_protocol_error(problem) from problem
    except SessionExpiredError as problem:
        raise RequestTimedOutError("the session with the coordination store was lost; try again") from problem
