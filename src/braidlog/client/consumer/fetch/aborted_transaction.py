"""What a fetch says of transactions that were taken back."""

from __future__ import annotations

from typing import NamedTuple


class AbortedRange(NamedTuple):
    """A producer's records from `first_offset` up to its abort marker were taken back."""

    producer_id: int
    first_offset: int
