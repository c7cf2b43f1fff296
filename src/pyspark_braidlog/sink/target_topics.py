"""Checks that the target topics exist: on the driver before any task runs, and in tasks for topics named by rows.

A topic that does not exist is created: as the options say, or else by the brokers, where they do that for producers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from braidlog import Admin
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.topics import NewTopic
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from pyspark_braidlog.client_settings import admin_settings
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import PARTITIONS, WriteOptions
from pyspark_braidlog.source.offset_reader import MissingTopics, OffsetReader, user_error
from pyspark_braidlog.source.topics import ConsumerStrategy, Subscribe, SubscribePattern

# A stream asks for every batch, in processes that live as long as the query.
_STILL_TRUE_S: Final = 60.0
# Asks the cluster all the same.
_NO_TOPIC: Final = SubscribePattern("(?!)")


def _ask(options: WriteOptions, consumer_strategy: ConsumerStrategy) -> None:
    with OffsetReader(options.client) as cluster:
        try:
            cluster.topics(consumer_strategy)
        except MissingTopics as problem:
            if not options.creation.is_allowed:
                raise
            missing, patience_s = problem.topics, cluster.patience_s
        else:
            return
    try:
        if options.creation.partitions is not None:
            _create(options, missing)
        else:
            _have_created(options, missing, patience_s)
    except (ProtocolError, BraidlogError) as problem:
        raise user_error(problem, options.servers) from None


def _create(options: WriteOptions, topics: Sequence[str]) -> None:
    wanted = [NewTopic(each, options.creation.partitions, options.creation.replication_factor) for each in topics]
    with Admin(admin_settings(options.client)) as admin:
        for problem in admin.create_topics(wanted).errors.values():
            # Another task or client was quicker.
            if not isinstance(problem, TopicAlreadyExistsError):
                raise problem


def _have_created(options: WriteOptions, topics: Sequence[str], patience_s: float) -> None:
    """Ask for them as a producer does, whereupon brokers create what is missing, unless they were user_error not to."""
    with ClusterConnection(options.servers, patience_s, admin_settings(options.client)) as cluster:
        for topic in topics:
            try:
                cluster.topic(topic, create=True)
            except UnknownTopicOrPartitionError:
                raise MissingTopics(
                    f"topic {topic} does not exist at {options.servers}, and its brokers do not create topics by "
                    f"themselves: create it first, correct the name, or set the option {PARTITIONS}",
                    [topic],
                ) from None


class TargetTopics:
    """What was seen to be there lately."""

    def __init__(
        self, ask: Callable[[WriteOptions, ConsumerStrategy], None] = _ask, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._now = now
        self._seen: dict[tuple[object, ...], float] = {}

    def check(self, options: WriteOptions) -> None:
        """The cluster answers and has the topic; else raises one sentence, within some ten seconds."""
        self._look(options, [options.topic])

    def checked(
        self, options: WriteOptions, columns: Columns, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The batches; a producer would wait for a minute for a topic that does not exist."""
        for batch in batches:
            self._look(options, columns.topics(batch))
            yield batch

    def _look(self, options: WriteOptions, topics: Sequence[str | None]) -> None:
        """All that were not seen lately in one question."""
        now = self._now()
        client = tuple(sorted(options.client.items()))
        unseen = [each for each in topics if now - self._seen.get((each, client), -math.inf) >= _STILL_TRUE_S]
        if not unseen:
            return
        named = tuple(each for each in unseen if each is not None)
        self._ask(options, Subscribe(named) if named else _NO_TOPIC)
        self._seen = {each: seen for each, seen in self._seen.items() if now - seen < _STILL_TRUE_S}
        self._seen |= {(each, client): now for each in unseen}


TARGET_TOPICS: Final = TargetTopics()
