"""Errors of a coordinator's own log become errors that its clients know."""

from __future__ import annotations

import pytest

from braidlog.coordinator.responders import to_client_error
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    KafkaStorageError,
    MessageTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (KafkaStorageError("full"), NotCoordinatorError),
        (NotLeaderOrFollowerError(), NotCoordinatorError),
        (NotEnoughReplicasError(), CoordinatorNotAvailableError),
        (UnknownTopicOrPartitionError(), CoordinatorNotAvailableError),
        (MessageTooLargeError(), UnknownServerError),
        (InvalidProducerEpochError("old"), InvalidProducerEpochError),
    ],
)
def test_errors_that_clients_know(error: ProtocolError, reported: type[ProtocolError]) -> None:
    answer = to_client_error(error)
    assert isinstance(answer, reported)
    assert answer.message
