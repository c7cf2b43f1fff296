from __future__ import annotations

import errno

import pytest

from braidlog.core.errors import UserError
from braidlog.net.outbound.errors import (
    AuthenticationFailed,
    ClientError,
    ClosedError,
    NoConnection,
    RequestTimeout,
    reason_of,
)


@pytest.mark.parametrize(
    ("error", "retriable"),
    [(NoConnection, True), (RequestTimeout, True), (AuthenticationFailed, False), (ClosedError, False)],
)
def test_what_may_be_tried_again(error: type[ClientError], retriable: bool) -> None:
    assert error("x").retriable is retriable


def test_what_a_person_can_change_is_a_user_error() -> None:
    assert issubclass(NoConnection, UserError)
    assert issubclass(AuthenticationFailed, UserError)
    assert not issubclass(RequestTimeout, UserError)


def test_a_reason_is_in_the_systems_words() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)")
    assert reason_of(refused) == "Connection refused"
    assert reason_of(OSError("no number")) == "no number"
