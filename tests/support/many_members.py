"""Very many members of one classic group over plain sockets: each joins, syncs, and heartbeats until told to stop."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.raw import RawConnection

UNKNOWN_MEMBER_ID = 25
MEMBER_ID_REQUIRED = 79
HEARTBEAT_S = 0.5
PROTOCOL = JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0")


class ManyMembers:
    """`settled` once every member heartbeats in the same generation with an assignment of its own."""

    def __init__(self, port: int, group: str, size: int) -> None:
        self._port = port
        self._group = group
        self._size = size
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._generations: dict[int, int] = {}
        self.settled = threading.Event()
        # (request, error code) -> how often.
        self.answers: Counter[tuple[str, int]] = Counter()
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._live, args=(number,), name=f"member {number}", daemon=True)
            for number in range(size)
        ]

    def settle(self, within_s: float) -> float:
        """How long it took."""
        began = time.monotonic()
        for thread in self._threads:
            thread.start()
        settled = self.settled.wait(within_s)
        took = time.monotonic() - began
        self._stop.set()
        for thread in self._threads:
            thread.join(within_s)
        assert not self.failures, self.failures[0]
        assert settled, f"not settled after {within_s:.0f} s: {dict(self.answers)}"
        return took

    def _live(self, number: int) -> None:
        try:
            with RawConnection(self._port) as connection:
                self._take_part(number, connection)
        except BaseException as failure:
            self.failures.append(failure)
            self.settled.set()

    def _take_part(self, number: int, connection: RawConnection) -> None:
        member_id = ""
        while not self._stop.is_set():
            joined: Any = connection.ask("JoinGroup", 9, self._join(member_id))
            self._note("join", joined.error_code)
            if joined.error_code == MEMBER_ID_REQUIRED:
                member_id = joined.member_id
            elif joined.error_code == UNKNOWN_MEMBER_ID:
                member_id = ""
            elif joined.error_code == 0:
                self._stay(number, connection, joined)

    def _stay(self, number: int, connection: RawConnection, joined: Any) -> None:
        parts = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=member.member_id.encode())
            for member in joined.members
        ]
        request = SyncGroupRequest(
            group_id=self._group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=parts
        )
        synced: Any = connection.ask("SyncGroup", 4, request)
        self._note("sync", synced.error_code)
        if synced.error_code != 0:
            return
        assert synced.assignment == joined.member_id.encode()
        beat = HeartbeatRequest(group_id=self._group, generation_id=joined.generation_id, member_id=joined.member_id)
        while not self._stop.is_set():
            answer: Any = connection.ask("Heartbeat", 4, beat)
            self._note("heartbeat", answer.error_code)
            if answer.error_code != 0:
                return
            with self._lock:
                self._generations[number] = joined.generation_id
                if len(self._generations) == self._size and len(set(self._generations.values())) == 1:
                    self.settled.set()
            self._stop.wait(HEARTBEAT_S)

    def _join(self, member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[PROTOCOL],
        )

    def _note(self, request: str, code: int) -> None:
        with self._lock:
            self.answers[(request, code)] += 1
