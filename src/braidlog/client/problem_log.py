"""Logs what keeps a client from its work while it goes on trying: polls and sends look the same meanwhile.

One WARNING with the cause once something has failed for two seconds, so that a leader that moves or a connection that
is made again goes unmentioned; another every 30 s for as long as it lasts; one INFO when it works again. What fails for
good is logged at once. Nothing here waits or sets a timer: the caller reports each attempt.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from braidlog.client.errors import RequestTimeout
from braidlog.core.protocol_errors import ProtocolError

log = logging.getLogger("braidlog.client")

# No broker at all: everything else that fails meanwhile follows from that.
CLUSTER: Final = ""

GRACE_S: Final = 2.0
INTERVAL_S: Final = 30.0
# After so long without an attempt, what fails is something new.
_STALE_S: Final = 90.0
_MANY: Final = 100


class _Failing:
    __slots__ = ("last", "logged_cause", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.last = since
        # The cause as it was logged; nothing as long as it was not.
        self.logged_cause = ""


class ProblemLog:
    """The problems of one client, from any of its threads. A subject is what fails: "topic orders", "group shop"."""

    def __init__(self, who: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._who = who
        # A program's own thread may read answers while the engine's tries something else.
        self._lock = threading.Lock()
        self._failing: dict[str, _Failing] = {}
        # When a line of each was written last, also when it has recovered since: one that comes and goes is not
        # logged more often than one that stays.
        self._last_logged: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        """Whether all works: asked before a subject is made up, where that happens often."""
        return not self._failing

    def failed(
        self, subject: str, problem: Exception | str, *, since: float | None = None, part_of: str = CLUSTER
    ) -> None:
        """It was tried, from `since` until now, and is going to be tried again.

        It is not logged while what it is part of fails as well.
        """
        with self._lock:
            self._failed(subject, problem, since, part_of)

    def _failed(self, subject: str, problem: Exception | str, since: float | None, part_of: str) -> None:
        now = self.now()
        failing = self._failing.get(subject)
        if failing is None or now - failing.last > _STALE_S:
            if len(self._failing) >= _MANY:
                self._drop_stale(now)
            failing = self._failing[subject] = _Failing(now if since is None else since)
        failing.last = now
        # A request that was not answered in time has failed for long enough.
        lasts = isinstance(problem, RequestTimeout) or not getattr(problem, "retriable", True)
        if not lasts and now - failing.since < GRACE_S:
            return
        if now - self._logged_at(subject) >= INTERVAL_S and not self._is_part_of_another(subject, part_of):
            self._log(subject, failing, problem, now)

    def _logged_at(self, subject: str) -> float:
        return self._last_logged.get(subject, -math.inf)

    def _is_part_of_another(self, subject: str, whole: str) -> bool:
        return any(other != subject and other in self._failing for other in (CLUSTER, whole))

    def _log(self, subject: str, failing: _Failing, problem: Exception | str, now: float) -> None:
        cause = _cause_of(problem, subject)
        # Hundreds of partitions fail for one reason: the line of the first speaks for all of them.
        same = [self._logged_at(each) for each, other in self._failing.items() if other.logged_cause == cause]
        failing.logged_cause = cause
        if same and now - max(same) < INTERVAL_S:
            self._last_logged[subject] = max(same)
            return
        self._last_logged[subject] = now
        seconds = round(now - failing.since)
        lasted = f"failing for {seconds} s, trying again" if seconds else "failing"
        log.warning("%s: %s: %s", self._who, lasted, f"{subject}: {cause}" if subject else cause)

    def recovered(self, subject: str) -> None:
        """It was tried and worked."""
        with self._lock:
            self._recovered(subject)

    def _recovered(self, subject: str) -> None:
        failing = self._failing.pop(subject, None)
        if failing is None:
            return
        if subject == CLUSTER:
            # What failed with it has another chance before it is logged.
            self._failing = {each: other for each, other in self._failing.items() if other.logged_cause}
        if failing.logged_cause and not any(
            each.logged_cause == failing.logged_cause for each in self._failing.values()
        ):
            lasted = self.now() - failing.since
            log.info("%s: works again after %.0f s: %s", self._who, lasted, subject or "the cluster answers")

    def recovered_all(self) -> None:
        with self._lock:
            for subject in list(self._failing):
                self._recovered(subject)

    def _drop_stale(self, now: float) -> None:
        self._failing = {each: other for each, other in self._failing.items() if now - other.last <= _STALE_S}
        self._last_logged = {
            each: logged_at for each, logged_at in self._last_logged.items() if now - logged_at <= _STALE_S
        }


def _cause_of(problem: Exception | str, subject: str) -> str:
    """In words, without what the line says already."""
    text = str(problem)
    if isinstance(problem, ProtocolError) and problem.message:
        text = f"{problem.message.removeprefix(f'{subject}: ')} ({problem.name})"
    return text or type(problem).__name__
