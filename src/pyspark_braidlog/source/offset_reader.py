"""What the driver asks a cluster: topics, and offsets in bulk; each answer in time, each failure one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from braidlog import TopicPartition
from braidlog.client.admin.admin import Admin
from braidlog.client.admin.records import IsolationLevel, OffsetSpec
from braidlog.client.admin.topics import TopicDescription
from braidlog.client.errors import AuthenticationFailed, NoConnection, RequestTimeout
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from pyspark_braidlog.client_settings import admin_settings
from pyspark_braidlog.source.topics import Assign, ConsumerStrategy, Subscribe, TopicFacts, compiled

if TYPE_CHECKING:
    from braidlog.client.arrow.reading import LogSample, RangeReader

_TIMEOUT: Final = "default.api.timeout.ms"
# Kafka's clients would try for a minute; a person who mistyped an address sits before the query.
_TIMEOUT_MS: Final = "10000"
# So many missing topics are named.
_MOST_NAMED: Final = 5

Answer = TypeVar("Answer")


class MissingTopics(UserError):
    """Topics or partitions that the query names do not exist (any more)."""

    def __init__(self, message: str, topics: Iterable[str]) -> None:
        super().__init__(message)
        self.topics = tuple(topics)


class ClusterUnavailable(UserError):
    """The cluster, or a part of it, is away: later the same question may be answered."""


class OffsetReader:
    """One cluster, seen from the driver; `client` are settings of a consumer. Connects when first asked."""

    def __init__(self, client: Mapping[str, str]) -> None:
        settings = admin_settings(client)
        settings.setdefault(_TIMEOUT, _TIMEOUT_MS)
        self.patience_s = int(settings[_TIMEOUT]) / 1000
        self._servers = client["bootstrap.servers"]
        # Read as the tasks' client reads it, which takes blanks and capitals.
        self._isolation = IsolationLevel[client.get("isolation.level", "read_uncommitted").strip().upper()]
        self._admin = Admin(settings)
        self._reader_settings = {_TIMEOUT: _TIMEOUT_MS, **client}
        # Made when the first sample is asked for.
        self._reader: RangeReader | None = None

    def __enter__(self) -> OffsetReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._admin.close()
        if self._reader is not None:
            self._reader.close()

    # Topics

    def topics(self, consumer_strategy: ConsumerStrategy, *, missing_ok: bool = False) -> dict[str, TopicFacts]:
        """The topics by name; with `missing_ok`, topics that do not exist are left out."""
        if isinstance(consumer_strategy, Subscribe):
            return self._named(consumer_strategy.topics, missing_ok)
        if isinstance(consumer_strategy, Assign):
            return self._assigned(consumer_strategy, missing_ok)
        pattern = compiled(consumer_strategy.pattern)
        listed = self._asked(lambda: self._admin.list_topics(internal=False))
        names = [each.name for each in listed if pattern.fullmatch(each.name)]
        # One may be deleted between the two questions.
        return self._named(names, missing_ok=True) if names else {}

    def _assigned(self, consumer_strategy: Assign, missing_ok: bool) -> dict[str, TopicFacts]:
        wanted: dict[str, set[int]] = {}
        for topic, partition in consumer_strategy.partitions:
            wanted.setdefault(topic, set()).add(partition)
        found: dict[str, TopicFacts] = {}
        for topic, facts in self._named(wanted, missing_ok).items():
            absent = sorted(wanted[topic].difference(facts.partitions))
            if absent and not missing_ok:
                count = len(facts.partitions)
                raise MissingTopics(
                    f"topic {topic} has no partition {absent[0]}; it has {count}, counted from 0", [topic]
                )
            found[topic] = facts._replace(partitions=tuple(sorted(wanted[topic].intersection(facts.partitions))))
        return found

    def _named(self, names: Iterable[str], missing_ok: bool) -> dict[str, TopicFacts]:
        outcomes = self._asked(lambda: self._admin.describe_topics(sorted(names))).outcomes
        found: dict[str, TopicFacts] = {}
        missing: list[str] = []
        for name, outcome in outcomes.items():
            if isinstance(outcome, TopicDescription):
                partitions = tuple(each.partition for each in outcome.partitions)
                found[outcome.name] = TopicFacts(str(outcome.topic_id) if outcome.topic_id else "", partitions)
            elif isinstance(outcome, UnknownTopicOrPartitionError):
                missing.append(str(name))
            else:
                raise user_error(outcome, self._servers) from None
        if missing and not missing_ok:
            raise _absent(missing, self._servers)
        return found

    # Offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """After the last record; under read_committed after the last of which is known whether it counts."""
        return self._offsets(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """After the last record, whatever becomes of its transaction."""
        return self._offsets(dict.fromkeys(partitions, int(OffsetSpec.LATEST)), IsolationLevel.READ_UNCOMMITTED)

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first record at or after a time; none where there is no such record."""
        found = self._offsets(timestamps_ms)
        return {where: offset if offset >= 0 else None for where, offset in found.items()}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What a group committed, without the partitions for which that is nothing."""
        # Offsets that a transaction is about to commit are waited for.
        wanted = {group: list(partitions)}
        try:
            found = self._admin.list_group_offsets(wanted, require_stable=True)[group]
        except GroupAuthorizationFailedError:
            raise UserError(f"no permission to see where group {group} is; allow Describe on the group") from None
        except (ProtocolError, BraidlogError) as problem:
            raise user_error(problem, self._servers) from None
        return {place: each.offset for place, each in found.items() if each.offset >= 0}

    def _offsets(
        self, at: Mapping[TopicPartition, int], isolation: IsolationLevel | None = None
    ) -> dict[TopicPartition, int]:
        if not at:
            return {}
        level = self._isolation if isolation is None else isolation
        outcomes = self._asked(lambda: self._admin.list_offsets(at, isolation=level))
        missing = [where for where, error in outcomes.errors.items() if isinstance(error, UnknownTopicOrPartitionError)]
        for error in outcomes.errors.values():
            if not isinstance(error, UnknownTopicOrPartitionError):
                raise user_error(error, self._servers) from None
        if missing:
            raise _absent(sorted({where.topic for where in missing}), self._servers)
        return {where: listed.offset for where, listed in outcomes.items()}

    def samples(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogSample]:
        """What the logs are like at these offsets, without those that are not there any more."""
        if not at:
            return {}
        if self._reader is None:
            # Most queries need none, and need not wait for pyarrow.
            from braidlog.client.arrow.reading import RangeReader

            self._reader = RangeReader(self._reader_settings)
        reader = self._reader
        return self._asked(lambda: reader.samples(at))

    def _asked(self, question: Callable[[], Answer]) -> Answer:
        try:
            return question()
        except (ProtocolError, BraidlogError) as problem:
            raise user_error(problem, self._servers) from None


def user_error(problem: Exception, servers: str) -> UserError:
    """The error as one sentence that says what to do next, without the traceback of the client."""
    if isinstance(problem, AuthenticationFailed):
        return UserError(f"the brokers at {servers} do not let this query in: {problem}")
    if isinstance(problem, (NoConnection, RequestTimeout)):
        return ClusterUnavailable(f"no answer from kafka.bootstrap.servers={servers}: {problem}")
    if isinstance(problem, (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)):
        return UserError(f"no permission to read: {problem.message or problem.name}")
    if getattr(problem, "retriable", False):
        return ClusterUnavailable(str(problem))
    return problem if isinstance(problem, UserError) else UserError(str(problem))


def _absent(topics: list[str], servers: str) -> MissingTopics:
    listed = ", ".join(topics[:_MOST_NAMED]) + (
        f" and {len(topics) - _MOST_NAMED} more" if len(topics) > _MOST_NAMED else ""
    )
    if len(topics) == 1:
        return MissingTopics(
            f"topic {listed} does not exist at {servers}; create it first, or correct the name", topics
        )
    return MissingTopics(f"topics {listed} do not exist at {servers}; create them first, or correct the names", topics)
