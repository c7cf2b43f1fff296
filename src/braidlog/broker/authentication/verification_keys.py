"""The keys that verify tokens, fetched from where their issuer publishes them, and again now and then.

They are fetched in a thread, at start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and when a token names a key
that is not among them: issuers change theirs. Anybody can send such a token, so that is done once in a while at most.
While an issuer does not answer, the keys of before count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from braidlog.core.clock import Clock
from braidlog.core.errors import UserError
from braidlog.core.tasks import Tasks
from braidlog.net.outbound.connector import in_own_thread
from braidlog.security.json_web_keys import BadKeySetError, JsonWebKeySet, parse_key_set

log = logging.getLogger("braidlog.security")

SCHEMES: Final = ("https://", "http://", "file://")
_FETCH_TIMEOUT_S: Final = 10.0
_LARGEST_KEY_SET: Final = 1 << 20
# How often a token with an unknown key leads to a fetch.
_UNKNOWN_KEY_EVERY_S: Final = 10.0
# A setting of 0 would ask without a pause.
_SHORTEST_PAUSE_S: Final = 0.1


class JwksEndpoint(NamedTuple):
    url: str
    refresh_s: float
    # After a failure; doubled with each that follows.
    retry_backoff_s: float
    retry_backoff_max_s: float


def fetch_key_set(url: str) -> JsonWebKeySet:
    """Blocks; raises OSError or BadKeySetError."""
    # Only who verifies tokens pays for the import.
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=_FETCH_TIMEOUT_S) as answer:
            return parse_key_set(answer.read(_LARGEST_KEY_SET))
    except BadKeySetError:
        raise
    except ValueError as problem:
        # Such as an answer that is no HTTP.
        raise OSError(str(problem)) from problem


def check_key_set(url: str) -> None:
    """Raises UserError for an address that cannot be right; a server that does not answer may do so later."""
    if not url.startswith(SCHEMES):
        raise UserError(f"sasl.oauthbearer.jwks.endpoint.url: {url} begins with none of {', '.join(SCHEMES)}")
    if not url.startswith("file://"):
        return
    try:
        fetch_key_set(url)
    except (OSError, BadKeySetError) as problem:
        raise UserError(f"sasl.oauthbearer.jwks.endpoint.url: {url} cannot be read: {problem}") from problem


class RefreshSchedule:
    """When to fetch next; times are in seconds of a clock that never goes back."""

    def __init__(self, endpoint: JwksEndpoint, now: float) -> None:
        self._endpoint = endpoint
        self._failures = 0
        self._begun = now
        self.next_at = now

    def begun(self, now: float) -> None:
        self._begun = now

    def succeeded(self, now: float) -> None:
        self._failures = 0
        self.next_at = now + max(self._endpoint.refresh_s, _SHORTEST_PAUSE_S)

    def failed(self, now: float) -> None:
        backoff_s = self._endpoint.retry_backoff_s * 2 ** min(self._failures, 30)
        self._failures += 1
        self.next_at = now + max(min(backoff_s, self._endpoint.retry_backoff_max_s), _SHORTEST_PAUSE_S)

    def unknown_key(self) -> bool:
        """A token names a key that is not there; whether that brings the next fetch nearer."""
        soonest = self._begun + _UNKNOWN_KEY_EVERY_S
        if soonest >= self.next_at:
            return False
        self.next_at = soonest
        return True


class RefreshingKeySet:
    """The keys of one endpoint."""

    def __init__(
        self, endpoint: JwksEndpoint, clock: Clock, fetch: Callable[[str], JsonWebKeySet] = fetch_key_set
    ) -> None:
        self._url = endpoint.url
        self._clock = clock
        self._fetch = fetch
        self._schedule = RefreshSchedule(endpoint, clock.monotonic())
        self._sooner = asyncio.Event()
        # Set when the endpoint was asked once, whatever it answered.
        self.asked = asyncio.Event()
        self.keys = JsonWebKeySet()

    def unknown_key(self) -> None:
        if self._schedule.unknown_key():
            self._sooner.set()

    async def refresh(self) -> None:
        """Without an end."""
        while True:
            self._sooner.clear()
            pause = self._schedule.next_at - self._clock.monotonic()
            if pause > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._sooner.wait(), pause)
                continue
            self._schedule.begun(self._clock.monotonic())
            try:
                found = await asyncio.wait_for(
                    in_own_thread("token keys", lambda: self._fetch(self._url)), 2 * _FETCH_TIMEOUT_S
                )
            except (OSError, BadKeySetError) as problem:
                self._schedule.failed(self._clock.monotonic())
                self._complain(problem)
            else:
                self._schedule.succeeded(self._clock.monotonic())
                self._take(found)
            self.asked.set()

    def _take(self, found: JsonWebKeySet) -> None:
        before, self.keys = self.keys, found
        if [key.kid for key in before.keys] != [key.kid for key in found.keys]:
            log.info("tokens are verified with %d keys from %s", len(found), self._url)
            for problem in found.skipped:
                log.warning("%s: %s; tokens that it signs are refused", self._url, problem)

    def _complain(self, problem: Exception) -> None:
        meanwhile = "the keys of before count" if self.keys else "logins with OAUTHBEARER are refused"
        why = str(problem) or type(problem).__name__
        log.warning("no keys from %s (%s): %s until it answers; it is asked again", self._url, why, meanwhile)


class VerificationKeys:
    """The keys of every endpoint that a listener names; listeners with the same one share them."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self.clock = clock
        self._tasks = tasks
        self._sets: dict[JwksEndpoint, RefreshingKeySet] = {}

    def of(self, endpoint: JwksEndpoint) -> RefreshingKeySet:
        found = self._sets.get(endpoint)
        if found is None:
            found = self._sets[endpoint] = RefreshingKeySet(endpoint, self.clock)
            self._tasks.spawn(f"keys of {endpoint.url}", found.refresh())
        return found

    async def asked(self) -> None:
        """Returns when every endpoint has answered once, or failed to."""
        for each in self._sets.values():
            await each.asked.wait()
