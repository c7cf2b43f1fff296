"""What can go wrong on a connection that this process opened.

ClientError              the base of what a client raises by itself (`client.errors` has the others)
  NoConnection           no broker reached, or it went away: whether it acted on the last request is not known
    ConnectionRefused    the host answers, and no process listens there
  RequestTimeout         a broker took the request and did not answer in time: the same doubt
  AuthenticationFailed   the broker refused our credentials, or we its certificate; trying again does not help
  ClosedError            the connection or the client was closed before
SaslError                an exchange of SASL failed; a client raises it as AuthenticationFailed
"""

from __future__ import annotations

import os

from braidlog.core.errors import BraidlogError, UserError


class ClientError(BraidlogError):
    """Base of what a client raises by itself; the message says what happened and what to do."""

    # Whether the same call may succeed later without a change.
    retriable = False


class NoConnection(ClientError, UserError):
    """The broker cannot be reached, or went away; whether it acted on the last request is not known."""

    retriable = True


class ConnectionRefused(NoConnection):
    """The host answered that nothing listens at this address: the broker's process is gone."""


class RequestTimeout(ClientError):
    """No answer in time; whether the broker acted on the request is not known."""

    retriable = True


class AuthenticationFailed(ClientError, UserError):
    """The broker refused our credentials, or we its certificate."""


class ClosedError(ClientError):
    """The client was closed before this."""


class SaslError(BraidlogError):
    """The exchange failed: the message says why, and holds neither password nor token."""


def reason_of(problem: OSError) -> str:
    """In the system's words; those of the loop name the address once more."""
    return os.strerror(problem.errno) if problem.errno else str(problem)
