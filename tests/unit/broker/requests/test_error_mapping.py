from __future__ import annotations

import logging

import pytest

from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.cluster.store import StoreFailedError
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import KafkaStorageError, NotControllerError, UnknownServerError


def test_an_error_of_the_protocol_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    error = NotControllerError("ask another")
    assert to_protocol_error(error, "create t") is error
    assert caplog.records == []


@pytest.mark.parametrize("problem", [StorageFault("/d", "broken"), StoreFailedError("full"), OSError(5, "broken")])
def test_the_disks_fault_is_named_and_logged(problem: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "braidlog.broker"):
        error = to_protocol_error(problem, "produce to orders-0")
    assert isinstance(error, KafkaStorageError)
    assert caplog.messages == [f"produce to orders-0 failed: {problem}"]


def test_a_bug_is_logged_with_its_trace_and_told_without(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "braidlog.broker"):
        error = to_protocol_error(KeyError("secret"), "produce to orders-0")
    assert isinstance(error, UnknownServerError)
    assert "secret" not in error.message
    assert "please report it" in caplog.messages[0]
    assert caplog.records[0].exc_info is not None
