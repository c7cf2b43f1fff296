"""A stream's position as a consumer group that anybody can look at: `braidlog groups describe`, any lag monitor.

Spark keeps the offsets that count in its checkpoint; the group only shows them. So a commit that fails for a while
never stops a query. The group has no members: it must not be one that consumers work in.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from braidlog import TopicPartition
from braidlog.client.admin.results import Failure, Results
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from pyspark_braidlog.client_settings import admin_settings
from pyspark_braidlog.source.offset_range import Offsets

if TYPE_CHECKING:
    from braidlog import Admin
    from braidlog.client.admin.groups import GroupDescription

# A trigger waits for so long at most, and not again for the second while commits fail.
_TIMEOUT_S: Final = 5.0
_RETRY_PAUSE_S: Final = 5.0
# Brokers forget what a group without members committed a week ago, also if it is still true.
_AGAIN_AFTER_S: Final = 600.0

# Trying again does not help: said when a query starts, not found out in its logs.
_REFUSALS: Final = (GroupAuthorizationFailedError, TopicAuthorizationFailedError, InvalidGroupIdError)
_HAS_MEMBERS: Final = (UnknownMemberIdError, IllegalGenerationError)


class GroupAdmin(Protocol):
    """What of an `Admin` is needed here."""

    def describe_groups(self, groups: list[str]) -> Results[str, GroupDescription]: ...

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, None]: ...

    def close(self) -> None: ...


def say(sentence: str) -> None:
    """A line on the driver's stderr."""
    print(f"braidlog: {sentence}", file=sys.stderr, flush=True)


def group_admin(client: Mapping[str, str]) -> Admin:
    """An admin with the settings of a consumer."""
    # Imported by queries that have a group; the others start sooner.
    from braidlog import Admin

    return Admin(admin_settings(client) | {"default.api.timeout.ms": str(int(_TIMEOUT_S * 1000))})


class OffsetCommitter:
    """Commits each position once."""

    def __init__(
        self,
        calls: GroupAdmin,
        group: str,
        *,
        tell: Callable[[str], None] = say,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._group = group
        self._tell = tell
        self._now = now
        self._shown: Offsets = {}
        # When all of it was last committed; None before the first time.
        self._complete_at: float | None = None
        self._failed_at: float | None = None

    def check(self) -> None:
        """Refuse a group that cannot be used, before anything was read."""
        try:
            described = self._calls.describe_groups([self._group])[self._group]
        except GroupIdNotFoundError:
            return
        except (ProtocolError, BraidlogError) as problem:
            if getattr(problem, "retriable", False):
                # The coordinator is away: lag is not worth the query, and the first commit finds out the same.
                return
            raise self._refused(problem) from None
        if described.members:
            raise self._occupied()

    def show(self, offsets: Offsets, *, is_last_chance: bool = False) -> None:
        """Commit what changed; while that fails the query goes on, and this is tried again with a later call."""
        now = self._now()
        is_first = self._complete_at is None
        due = self._complete_at is None or now - self._complete_at >= _AGAIN_AFTER_S
        wanted = offsets if due else {place: each for place, each in offsets.items() if self._shown.get(place) != each}
        is_pausing = self._failed_at is not None and now - self._failed_at < _RETRY_PAUSE_S
        if not wanted or (is_pausing and not is_last_chance):
            return
        failures = self._commit(wanted)
        if not failures:
            self._complete_at = now if due else self._complete_at
            self._recovered()
        elif is_first and isinstance(failures[0], _REFUSALS):
            raise self._refused(failures[0])
        elif is_first and isinstance(failures[0], _HAS_MEMBERS):
            raise self._occupied()
        else:
            self._failed(failures[0])

    def _commit(self, wanted: Offsets) -> list[Failure]:
        try:
            outcomes = self._calls.alter_group_offsets(self._group, wanted).outcomes
        except (ProtocolError, BraidlogError) as problem:
            return [problem]
        self._shown |= {place: wanted[place] for place, outcome in outcomes.items() if outcome is None}
        # What became of a deleted topic is not the group's to tell.
        return [each for each in outcomes.values() if each and not isinstance(each, UnknownTopicOrPartitionError)]

    def _failed(self, problem: Failure) -> None:
        if self._failed_at is None:
            self._tell(
                f"progress could not be committed to group {self._group}, so its lag looks higher than it is; "
                f"the query goes on, and the commit is tried again: {problem}"
            )
        self._failed_at = self._now()

    def _recovered(self) -> None:
        if self._failed_at is not None:
            self._tell(f"progress is committed to group {self._group} again")
        self._failed_at = None

    def close(self) -> None:
        self._calls.close()

    def _occupied(self) -> UserError:
        return UserError(
            f"consumers are at work in group {self._group}; a query's progress needs a group of its own: "
            "give another groupId, or stop them first"
        )

    def _refused(self, problem: Exception) -> UserError:
        if isinstance(problem, (GroupAuthorizationFailedError, TopicAuthorizationFailedError)):
            return UserError(
                f"no permission to commit progress to group {self._group} ({problem}); allow Read on the group and "
                "its topics, or leave out the option groupId"
            )
        return UserError(f"group {self._group} cannot be used for progress: {problem}")
