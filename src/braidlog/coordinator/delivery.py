"""Telling those who wait, so that whatever becomes of one answer the others are none the worse.

Answers of one commit are of many groups and connections. One that cannot be said in its client's version, or whose
connection is in a bad way, must neither keep the others from theirs nor stop the commit that is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from braidlog.coordinator.effects import Ticket
from braidlog.coordinator.port import Done
from braidlog.core.protocol_errors import ProtocolError, UnknownServerError
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.coordinator")

Reply = tuple[Ticket, Message | ProtocolError]


def deliver(where: str, replies: Iterable[Reply]) -> None:
    for ticket, response in replies:
        try:
            if isinstance(response, ProtocolError):
                ticket.fail(response)
            else:
                ticket.answer(response)
        except Exception as bug:
            _fail_instead(where, ticket, report(where, bug))


def refuse_all(where: str, replies: Iterable[Reply], error: ProtocolError) -> None:
    """What they were to be told has not come to be."""
    deliver(where, [(ticket, error) for ticket, _ in replies])


def tell(where: str, done: Done | None, error: ProtocolError | None) -> None:
    try:
        if done is not None:
            done(error)
    except Exception as bug:
        report(where, bug)


def report(where: str, bug: Exception) -> ProtocolError:
    """For the broker's log; returns what the client is told."""
    log.error("%s: a bug in braidlog, please report it", where, exc_info=bug)
    return UnknownServerError("the broker met a bug; its log has the details")


def _fail_instead(where: str, ticket: Ticket, error: ProtocolError) -> None:
    """The answer could not be said, perhaps the error can."""
    try:
        ticket.fail(error)
    except Exception as bug:
        log.error("%s: a client got no answer", where, exc_info=bug)
