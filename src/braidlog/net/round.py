"""The end of a loop round: what was staged is committed once, then every connection with replies sends once.

Callbacks of readable sockets run first and only note what they changed; the round runs after them. So fifty
connections with one small request each cost one write per log and one send per connection. When only one connection
is active there is nothing to gather and the round runs at once, inside that connection's callback. One that delivers
some time after all others is taken to be the only one, so that the loop need not take another turn for the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from braidlog.net.channel import Channel


log = logging.getLogger("braidlog.net")


class Scheduler(Protocol):
    """The part of an event loop that a round needs."""

    def call_soon(self, callback: Callable[[], object]) -> object: ...


_IDLE: Final = 0
_COMMITTING: Final = 1
_SENDING: Final = 2
# Connections that are readable in the same turn of the loop follow each other faster than this.
ALONE_AFTER_S: Final = 0.00005


class Round:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._scheduled = False
        self._phase = _IDLE
        self._again = False
        self._channels: list[Channel] = []
        self._commit: Callable[[], None] | None = None
        # Called after every round; a stopping broker looks here whether all is answered.
        self.after: Callable[[], None] | None = None
        self._readers = 0
        # How many connections delivered requests in the last round: the guess for how many will in this one.
        self._last_readers = 0
        # When the last one was done with what it delivered; set by the connections.
        self.last_read = 0.0
        # The connection whose requests are being handled is taken to be the only active one: no turn is scheduled.
        self._reads_alone = False
        self._touched_alone = False

    def on_commit(self, commit: Callable[[], None]) -> None:
        """What must happen before replies leave: write the staged appends, complete what waits for them."""
        self._commit = commit

    def touch(self) -> None:
        """Something was staged or answered: the round must run."""
        if self._phase == _SENDING:
            # Sending unmuted a connection whose next requests belong to the round that follows.
            self._again = True
        elif self._phase == _IDLE and not self._scheduled:
            if self._reads_alone:
                self._touched_alone = True
            else:
                self._scheduled = True
                self._scheduler.call_soon(self.run)

    def add(self, channel: Channel) -> None:
        """A connection has replies to send."""
        self._channels.append(channel)
        self.touch()

    def before_read(self, now: float) -> None:
        """A connection is about to handle what it received at `now`; `after_read` follows, whatever happens."""
        self._reads_alone = (
            now - self.last_read > ALONE_AFTER_S
            and self._last_readers <= 1
            and self._phase == _IDLE
            and not self._scheduled
        )

    def after_read(self) -> None:
        """A connection handled what it received: finish now if it is alone, else gather with the others."""
        if self._reads_alone:
            self._reads_alone = False
            if self._touched_alone:
                self._touched_alone = False
                self._finish()
            return
        self._readers += 1
        if self._last_readers <= 1 and self._scheduled and self._phase == _IDLE:
            self._finish()

    def run(self) -> None:
        self._scheduled = False
        self._last_readers = self._readers
        self._readers = 0
        self._finish()

    def _finish(self) -> None:
        try:
            if self._commit is not None:
                self._phase = _COMMITTING
                try:
                    self._commit()
                except Exception as problem:
                    # Replies that are ready have nothing to do with it, and must leave.
                    log.error("committing failed, a bug in braidlog, please report it", exc_info=problem)
            self._phase = _SENDING
            channels = self._channels
            self._channels = []
            for channel in channels:
                try:
                    channel.flush()
                except Exception as problem:
                    _give_up(channel, problem)
        finally:
            self._phase = _IDLE
        if self._again or self._channels:
            self._again = False
            self.touch()
        if self.after is not None:
            self.after()


def _give_up(channel: Channel, problem: Exception) -> None:
    """One connection's failure closes that connection and holds up no other."""
    message = "closed the connection from %s: sending failed, a bug in braidlog, please report it"
    log.error(message, channel.peer_host, exc_info=problem)
    try:
        channel.close("sending failed")
    except Exception as another:
        log.error("closing the connection from %s failed as well", channel.peer_host, exc_info=another)
