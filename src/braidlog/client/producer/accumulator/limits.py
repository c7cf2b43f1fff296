"""The bounds that a producer's queues keep to (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from braidlog.wire.records.batch import HEADER_SIZE

# Beside key, value and headers: lengths, deltas and attributes at their longest.
RECORD_OVERHEAD: Final = 32


class AccumulatorLimits:
    """The settings that the queues go by."""

    def __init__(
        self,
        batch_size: int = 262_144,
        linger_s: float = 0.0,
        max_request: int = 1_048_576,
        memory: int = 33_554_432,
        delivery_timeout_s: float = 120.0,
        max_block_s: float = 60.0,
        max_in_flight: int = 5,
    ) -> None:
        self.batch_size: i64 = batch_size
        self.linger_s = linger_s
        self.max_request: i64 = max_request
        self.memory: i64 = memory
        self.delivery_timeout_s = delivery_timeout_s
        self.max_block_s = max_block_s
        self.max_in_flight: i64 = max_in_flight


def too_large_for(limits: AccumulatorLimits, size: i64) -> str | None:
    """Why a record of this size cannot be sent at all."""
    if size + HEADER_SIZE > limits.max_request:
        return (
            f"a record of {size + HEADER_SIZE} bytes is larger than max.request.size ({limits.max_request}); "
            "raise that (and the topic's max.message.bytes), or send less"
        )
    if size > limits.memory:
        return f"a record of {size} bytes does not fit buffer.memory ({limits.memory}); raise it, or send less"
    return None
