from __future__ import annotations

import pytest

from braidlog.client import errors
from braidlog.client.errors import (
    AbortableError,
    ArgumentError,
    BufferFullError,
    ClientError,
    DeliveryTimeoutError,
    FencedProducerError,
    HandlerFailedError,
    LogTruncatedError,
    NoOffsetError,
    PoisonRecordError,
    ProducerFailedError,
    SettingError,
)
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.types import TopicPartition

P0 = TopicPartition("t", 0)


def test_what_may_be_tried_again() -> None:
    assert BufferFullError("x").retriable
    assert DeliveryTimeoutError("x").retriable
    for error in (AbortableError, ProducerFailedError, FencedProducerError):
        assert not error("x").retriable


def test_families() -> None:
    assert issubclass(FencedProducerError, ProducerFailedError)
    assert issubclass(SettingError, UserError)
    assert issubclass(ArgumentError, TypeError)
    raised = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert all(issubclass(each, BraidlogError) for each in raised)


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (NoOffsetError("m", P0, 7), {"partition": P0, "offset": 7}),
        (LogTruncatedError("m", P0, 9, 5), {"partition": P0, "position": 9, "diverging_offset": 5}),
        (PoisonRecordError("m", P0, 3, 4), {"partition": P0, "offset": 3, "resume_at": 4}),
        (HandlerFailedError("m", "record"), {"record": "record"}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_carry_what_a_program_needs_to_go_on(error: ClientError, facts: dict[str, object]) -> None:
    assert {name: getattr(error, name) for name in facts} == facts
    assert str(error) == "m"
