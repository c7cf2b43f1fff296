"""What an assignor is given, and which there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from braidlog.coordinator.group.consumer.member import Assignment


class MemberSubscription(NamedTuple):
    """A member as assignors see it."""

    member_id: str
    instance_id: str | None
    # The topics it reads that exist, each once.
    topics: tuple[bytes, ...]
    # What was meant for it until now.
    before: Assignment


# Topic id -> how many partitions.
Partitions = Mapping[bytes, int]
