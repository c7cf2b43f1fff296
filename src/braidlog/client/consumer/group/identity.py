"""Who a member is to its coordinator, for the requests that have to say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    # Of the newer protocol: the member epoch.
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    # The newer protocol's members say who they are when they fetch offsets, too.
    uses_consumer_protocol: bool = False

    @property
    def is_member(self) -> bool:
        return self.generation > NO_GENERATION


# A consumer that assigns partitions to itself, and only keeps its offsets in the group.
NO_MEMBER: Final = GroupIdentity()
