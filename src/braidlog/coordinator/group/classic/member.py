"""A member of a classic group: what it said when it joined, what it was given, and which reply it waits for."""

from __future__ import annotations

from typing import NamedTuple

from braidlog.coordinator.effects import Responder


class MemberProtocol(NamedTuple):
    """A way of assigning that a member can follow, with what the leader has to know of it."""

    name: str
    metadata: bytes


class ClassicGroupMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_responder",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_responder",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: list[MemberProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        # Set for static members (KIP-345): who comes back under it takes this one's place.
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        # In the order of preference.
        self.protocols = protocols
        self.assignment = assignment
        # Knows of no generation yet, so it cannot send heartbeats.
        self.is_new = False
        self.join_responder: Responder | None = None
        self.sync_responder: Responder | None = None

    def metadata_of(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def preferred(self, candidates: dict[str, int]) -> str | None:
        """Its vote."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None
