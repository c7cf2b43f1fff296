"""What a client is told where the coordination store fails."""

from __future__ import annotations

import pytest

from braidlog.broker.handlers.store_problems import told_to_client
from braidlog.cluster.store import (
    NoNodeError,
    SessionExpiredError,
    StoreFailedError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from braidlog.core.protocol_errors import (
    InvalidRequestError,
    KafkaStorageError,
    RequestTimedOutError,
    UnknownServerError,
)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (NoNodeError("/config"), UnknownServerError),
        (StoreUnavailableError("away"), RequestTimedOutError),
        (UnknownOutcomeError("answer lost"), RequestTimedOutError),
        (SessionExpiredError("gone"), RequestTimedOutError),
        (StoreFailedError("disk"), KafkaStorageError),
        (InvalidRequestError("as it is"), InvalidRequestError),
    ],
)
def test_a_problem_becomes_an_error_of_the_protocol(problem: Exception, told: type[Exception]) -> None:
    with pytest.raises(told), told_to_client():
        raise problem
