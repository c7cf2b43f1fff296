"""The driver's half of a stream: where it begins, and batch by batch how far it may read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.streaming.datasource import ReadLimit

from braidlog import TopicPartition
from pyspark_braidlog.source.admission import Admission
from pyspark_braidlog.source.data_loss import Findings, examine, is_chosen, is_other_topic, notice, refusal
from pyspark_braidlog.source.offset_committer import say
from pyspark_braidlog.source.offset_range import Offsets
from pyspark_braidlog.source.offset_reader import ClusterUnavailable, MissingTopics, OffsetReader
from pyspark_braidlog.source.offset_resolution import OffsetLookup, starting_offsets
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.source_lag import LAG, SourceLag
from pyspark_braidlog.source.stream_offset import StreamOffset, by_topic
from pyspark_braidlog.source.topics import ConsumerStrategy, TopicFacts, topic_partitions

if TYPE_CHECKING:
    from braidlog.client.arrow.reading import LogSample

# Spark asks a hundred times a second while there is nothing to read; new partitions may wait a little.
_TOPICS_GOOD_FOR_S: Final = 1.0
# After an election a leader may for a moment not know how far its log is committed.
_ATTEMPTS: Final = 4
_BETWEEN_ATTEMPTS_S: Final = 0.25
# A stream that runs outlives a broker's restart, as its tasks do; one that starts fails at once.
_OUTAGE_MS: Final = "60000"
_BETWEEN_QUESTIONS_S: Final = 1.0


class View(OffsetLookup, Protocol):
    """What of a `OffsetReader` is needed here."""

    def topics(self, consumer_strategy: ConsumerStrategy, *, missing_ok: bool = False) -> dict[str, TopicFacts]: ...

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def samples(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogSample]: ...

    def close(self) -> None: ...


class StreamPlanner:
    """Says where the next batch ends. Keeps its connections from trigger to trigger."""

    def __init__(
        self,
        options: ReadOptions,
        new_view: Callable[[Mapping[str, str]], View] = OffsetReader,
        *,
        tell: Callable[[str], None] = say,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._view = new_view(options.client)
        self._tell = tell
        self._now = now
        self._pause = pause
        self._admission = Admission(
            most=options.max_offsets,
            most_bytes=options.max_bytes,
            least=options.min_offsets,
            max_delay_s=options.max_delay_s,
            now=now,
            bytes_per_offset=self._bytes_per_offset,
        )
        self._initial: StreamOffset | None = None
        self._facts: dict[str, TopicFacts] | None = None
        self._facts_at = 0.0
        # Where a query ends that reads what is available now.
        self._goal: Offsets | None = None
        self._goal_ids: dict[str, str] = {}
        self._told: set[str] = set()
        self._outage_s = int(options.client.get("default.api.timeout.ms", _OUTAGE_MS)) / 1000
        self._was_answered = False
        # What was last seen to be available.
        self._latest: Offsets = {}
        self._lag = SourceLag(self._view.samples, now=now, wall=wall)

    @property
    def own_limit(self) -> ReadLimit:
        return self._admission.own_limit

    @property
    def is_available_now(self) -> bool:
        return self._goal is not None

    def close(self) -> None:
        self._view.close()

    def initial(self) -> StreamOffset:
        """Where a new stream begins. Spark asks twice; the second answer must be the first."""
        if self._initial is None:
            facts = self._view.topics(self._options.consumer_strategy)
            offsets = starting_offsets(self._view, self._options, facts)
            self._initial = StreamOffset(offsets, _ids(facts, offsets), is_initial=True)
        return self._initial

    def prepare_for_available_now(self) -> None:
        """From now on nothing is available but what there is now."""
        facts = self._view.topics(self._options.consumer_strategy, missing_ok=True)
        self._goal = self._view.latest(topic_partitions(facts))
        self._goal_ids = {topic: fact.topic_id for topic, fact in facts.items()}

    def next_end(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """Where the batch from `start` on ends; `start` itself if there is nothing to read, or not enough."""
        deadline = self._now() + self._outage_s
        is_away = False
        while True:
            try:
                end = self._end_or_missing(start, limit)
            except ClusterUnavailable as problem:
                if not self._was_answered or self._now() >= deadline:
                    raise
                if not is_away:
                    self._tell(f"{problem}; the query waits for up to {self._outage_s:g} s")
                is_away = True
                self._pause(_BETWEEN_QUESTIONS_S)
                continue
            if is_away:
                self._tell("the brokers answer again")
            self._was_answered = True
            return end

    def _end_or_missing(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        for _ in range(_ATTEMPTS):
            try:
                return self._next_end(start, limit)
            except MissingTopics as problem:
                # Deleted a moment ago: the next look tells whether that is a loss.
                self._facts = None
                missing = problem
        raise missing

    def _next_end(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        known = self._facts
        facts = self._settled(start)
        available = self._available(facts)
        if self._facts is known and _is_odd(start, facts, available):
            self._facts = None
            facts = self._settled(start)
            available = self._available(facts)
        findings = self._findings(start, facts, available)
        self._weigh(findings)
        begin = findings.begin
        available = {place: max(available[place], begin[place]) for place in begin}
        self._latest = available
        end = self._admission.end(begin, available, limit, is_last_chance=self.is_available_now)
        ids = _ids(facts, end)
        if start.is_initial:
            # Differs from `start` also without records: so Spark writes this batch down, and the beginning with it.
            return StreamOffset(end, ids, begin)
        if end == start.offsets and ids == start.ids:
            return start
        return StreamOffset(
            end, ids, {place: each for place, each in begin.items() if start.offsets.get(place) != each}
        )

    def report(self, position: Offsets) -> dict[str, Any]:
        """What there is to read, and how far a query is behind that has read up to `position`."""
        if not self._latest:
            # The batch was planned before a restart: nothing was asked since.
            self._latest = self._available(self._view.topics(self._options.consumer_strategy, missing_ok=True))
        return {LAG: self._lag.written(position, self._latest)} | by_topic(self._latest)

    def _bytes_per_offset(self, at: Offsets) -> dict[TopicPartition, float]:
        return {place: each.bytes_per_offset for place, each in self._view.samples(at).items()}

    def _settled(self, start: StreamOffset) -> dict[str, TopicFacts]:
        """The topics; those that seem to be gone are looked for again, since a broker that starts may know of few.

        To take one for deleted would mean to read it from its beginning when it is there again.
        """
        facts = self._topics(start)
        for _ in range(_ATTEMPTS - 1):
            if not self._lacks(facts, start):
                break
            self._pause(_BETWEEN_ATTEMPTS_S)
            self._facts = None
            facts = self._topics(start)
        return facts

    def _lacks(self, facts: dict[str, TopicFacts], start: StreamOffset) -> bool:
        there = set(topic_partitions(facts))
        return any(place not in there and is_chosen(self._options.consumer_strategy, place) for place in start.offsets)

    def _topics(self, start: StreamOffset) -> dict[str, TopicFacts]:
        is_first = self._facts is None and self._facts_at == 0.0
        now = self._now()
        # With a goal, what is new does not matter.
        if self._facts is None or (not self.is_available_now and now - self._facts_at >= _TOPICS_GOOD_FOR_S):
            facts = self._view.topics(self._options.consumer_strategy, missing_ok=True)
            if is_first and self._options.fail_on_data_loss:
                self._check_there(facts, start)
            self._facts, self._facts_at = facts, now
        if self._goal is None:
            return self._facts
        return _restricted(self._facts, self._goal.keys() | start.offsets.keys())

    def _check_there(self, facts: dict[str, TopicFacts], start: StreamOffset) -> None:
        """A topic that is named, but was never there, is a mistake and no loss."""
        if {place.topic for place in start.offsets} <= facts.keys():
            self._view.topics(self._options.consumer_strategy)

    def _available(self, facts: dict[str, TopicFacts]) -> Offsets:
        places = topic_partitions(facts)
        if self._goal is None:
            return self._view.latest(places)
        replaced = {topic for topic, each in self._goal_ids.items() if topic in facts and facts[topic].topic_id != each}
        if replaced:
            # The goal was one of the topic that is gone.
            self._goal |= self._view.latest([place for place in places if place.topic in replaced])
            self._goal_ids |= {topic: facts[topic].topic_id for topic in replaced}
        return {place: self._goal.get(place, 0) for place in places}

    def _findings(self, start: StreamOffset, facts: dict[str, TopicFacts], available: Offsets) -> Findings:
        """Ask for the first offsets only where a batch would begin: nothing else can have been lost."""
        others = {topic for topic in facts if is_other_topic(start, facts, topic)}
        asked = [
            place for place, until in available.items() if place.topic in others or start.offsets.get(place, -1) < until
        ]
        same = [place for place in available if place in start.offsets and place.topic not in others]
        ends = available | self._log_ends({place: start.offsets[place] for place in same}, available)
        return examine(start, self._options, facts, earliest=self._view.earliest(asked), ends=ends)

    def _log_ends(self, positions: Offsets, available: Offsets) -> Offsets:
        """The log ends of partitions that seem to end before the stream's position: transactions may be open there."""
        short = [place for place, position in positions.items() if available[place] < position]
        if not short:
            return {}
        found: Offsets = {}
        for look in range(_ATTEMPTS):
            if look:
                self._pause(_BETWEEN_ATTEMPTS_S)
            found = self._view.log_ends(short)
            if all(found[place] >= positions[place] for place in short):
                break
        return found

    def _weigh(self, findings: Findings) -> None:
        if findings.losses and self._options.fail_on_data_loss:
            raise refusal(findings.losses)
        for loss in findings.losses:
            sentence = notice(loss)
            if sentence not in self._told:
                self._told.add(sentence)
                self._tell(sentence)


def _is_odd(start: StreamOffset, facts: dict[str, TopicFacts], available: Offsets) -> bool:
    """Something is not as the last batch left it: worth a fresh look at the topics before it is called a loss."""
    return available.keys() != start.offsets.keys() or any(
        available[place] < position or is_other_topic(start, facts, place.topic)
        for place, position in start.offsets.items()
    )


def _restricted(facts: dict[str, TopicFacts], places: Iterable[TopicPartition]) -> dict[str, TopicFacts]:
    wanted: dict[str, set[int]] = {}
    for topic, partition in places:
        wanted.setdefault(topic, set()).add(partition)
    return {
        topic: fact._replace(partitions=tuple(each for each in fact.partitions if each in wanted[topic]))
        for topic, fact in facts.items()
        if topic in wanted
    }


def _ids(facts: Mapping[str, TopicFacts], offsets: Offsets) -> dict[str, str]:
    read = {place.topic for place in offsets}
    return {topic: fact.topic_id for topic, fact in facts.items() if fact.topic_id and topic in read}
