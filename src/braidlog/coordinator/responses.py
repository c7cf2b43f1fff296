"""Sends replies to waiting requests one by one, so that a failure of one does not affect the others.

Answers of one commit are of many groups and connections. One that cannot be said in its client's version, or whose
connection is in a bad way, must neither keep the others from theirs nor stop the commit that is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from braidlog.coordinator.effects import Responder
from braidlog.coordinator.partition_writer import AppendCallback
from braidlog.core.protocol_errors import ProtocolError, UnknownServerError
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.coordinator")

Reply = tuple[Responder, Message | ProtocolError]


def deliver(where: str, replies: Iterable[Reply]) -> None:
    for responder, response in replies:
        try:
            if isinstance(response, ProtocolError):
                responder.fail(response)
            else:
                responder.answer(response)
        except Exception as bug:
            _fail_instead(where, responder, log_bug(where, bug))


def fail_all(where: str, replies: Iterable[Reply], error: ProtocolError) -> None:
    """What they were to be told has not come to be."""
    deliver(where, [(responder, error) for responder, _ in replies])


def run_callback(where: str, done: AppendCallback | None, error: ProtocolError | None) -> None:
    try:
        if done is not None:
            done(error)
    except Exception as bug:
        log_bug(where, bug)


def log_bug(where: str, bug: Exception) -> ProtocolError:
    """For the broker's log; returns what the client is told."""
    log.error("%s: a bug in braidlog, please report it", where, exc_info=bug)
    return UnknownServerError("the broker met a bug; its log has the details")


def _fail_instead(where: str, responder: Responder, error: ProtocolError) -> None:
    """The answer could not be said, perhaps the error can."""
    try:
        responder.fail(error)
    except Exception as bug:
        log.error("%s: a client got no answer", where, exc_info=bug)
