"""What every kind of group offers, whichever protocol its members speak."""

from __future__ import annotations

from typing import Literal, Protocol

from braidlog.coordinator.effects import Effects
from braidlog.wire.generated.list_groups import ListedGroup

Kind = Literal["classic", "consumer"]


class Group(Protocol):
    """A group of one shard. A method that validates raises the protocol error for the client."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    def state_name(self) -> str:
        """As ListGroups and DescribeGroups spell it ("Stable", "PreparingRebalance", "Reconciling", …)."""
        ...

    def as_listed_group(self) -> ListedGroup: ...

    def is_empty(self) -> bool:
        """No members: it may be deleted, and its offsets age."""
        ...

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, version: int
    ) -> None: ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def validate_offset_delete(self) -> None: ...

    def validate_delete(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets neither expire nor may be deleted."""
        ...

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts; None while it must not expire at all."""
        ...

    def write_tombstones(self, effects: Effects) -> None:
        """Delete the records of the group itself (its offsets are the offset store's)."""
        ...
