"""When a member has to send a heartbeat, and when it is too late: pure arithmetic over times that the caller gives."""

from __future__ import annotations


class HeartbeatTimer:
    """Times of one membership, in seconds of the monotonic clock.

    last_heard <= last_sent + interval, as long as the coordinator answers in time.
    """

    def __init__(self, interval_s: float, session_s: float, max_poll_s: float, now: float) -> None:
        self.interval_s = interval_s
        self.session_s = session_s
        self.max_poll_s = max_poll_s
        self.last_sent = now
        self.last_heard = now
        self.last_poll = now
        # After a failure the next try does not wait for the whole interval.
        self._retry_at: float | None = None

    def begin(self, now: float) -> None:
        """A generation begins: the coordinator has just answered."""
        self.last_sent = self.last_heard = now
        self._retry_at = None

    def sent(self, now: float) -> None:
        self.last_sent = now
        self._retry_at = None

    def heard(self, now: float) -> None:
        self.last_heard = now

    def failed(self, now: float, pause_s: float) -> None:
        self._retry_at = now + pause_s

    def polled(self, now: float) -> None:
        self.last_poll = now

    def due_at(self) -> float:
        return self._retry_at if self._retry_at is not None else self.last_sent + self.interval_s

    def is_session_over(self, now: float) -> bool:
        """The coordinator has not answered for a whole session: it has given us up, or cannot be reached."""
        return now - self.last_heard > self.session_s

    def is_poll_overdue(self, now: float) -> bool:
        return now - self.last_poll > self.max_poll_s

    def wait_s(self, now: float) -> float:
        """Until something is due: a heartbeat, or the end of the application's time to poll."""
        return max(0.0, min(self.due_at(), self.last_poll + self.max_poll_s + 0.001) - now)
