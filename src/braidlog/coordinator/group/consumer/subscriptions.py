"""What a group reads: the topics that its members name, and those that their patterns stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from braidlog.coordinator.group.consumer.member import Profile
from braidlog.coordinator.group.consumer.patterns import Pattern
from braidlog.coordinator.group.topics import Topics
from braidlog.core.protocol_errors import InvalidRegularExpressionError

# Compiled patterns that are kept, used or not.
MAX_PATTERNS: Final = 500
# Patterns whose topics are remembered: a member may come with another one each time.
MAX_RESOLVED: Final = 5_000


class TopicMetadata(NamedTuple):
    """A topic as the group saw it when its target was last worked out; a difference calls for a new target."""

    topic_id: bytes
    partitions: int
    # By partition; empty where no replica's rack is known.
    racks: tuple[frozenset[str], ...] = ()


class TopicRegexResolver:
    """The topics that patterns stand for, worked out once per change of topics and pattern.

    Not durable: it follows from the cluster's topics alone, so a shard that was rebuilt asks anew.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._patterns: dict[str, Pattern] = {}
        self._resolved: dict[str, tuple[str, ...]] = {}

    def topics_changed(self) -> None:
        self._resolved.clear()

    def validate(self, regex: str) -> None:
        """Raises InvalidRegularExpressionError."""
        self._pattern(regex)

    def resolve(self, regex: str) -> tuple[str, ...]:
        """The names, in order; none for an empty pattern."""
        if not regex:
            return ()
        found = self._resolved.get(regex)
        if found is None:
            if len(self._resolved) >= MAX_RESOLVED:
                self._resolved.clear()
            found = self._resolved[regex] = self._matched(regex)
        return found

    def _matched(self, regex: str) -> tuple[str, ...]:
        try:
            pattern = self._pattern(regex)
        except InvalidRegularExpressionError:
            # Members are refused with it: it is out of a log that another broker wrote.
            return ()
        return tuple(sorted(name for name in self._topics.names() if pattern.matches(name)))

    def topics_of(self, profile: Profile) -> tuple[str, ...]:
        """Everything that the member reads, in order."""
        matched = self.resolve(profile.regex)
        if not matched:
            return profile.topics
        if not profile.topics:
            return matched
        return tuple(sorted({*profile.topics, *matched}))

    def forget_unused(self, used: Iterable[str]) -> None:
        keep = set(used)
        self._patterns = {regex: pattern for regex, pattern in self._patterns.items() if regex in keep}
        self._resolved = {regex: names for regex, names in self._resolved.items() if regex in keep}

    def _pattern(self, regex: str) -> Pattern:
        pattern = self._patterns.get(regex)
        if pattern is None:
            if len(self._patterns) >= MAX_PATTERNS:
                # Clients may try any number of them; those in use are compiled again when they are needed.
                self._patterns.clear()
            pattern = self._patterns[regex] = Pattern(regex)
        return pattern


def compute_subscription_metadata(names: Iterable[str], topics: Topics) -> dict[str, TopicMetadata]:
    """Those of the names that exist."""
    found: dict[str, TopicMetadata] = {}
    for name in names:
        facts = topics.get(name)
        if facts is not None:
            racks = tuple(topics.racks_of(name, number) for number in range(facts.partitions))
            found[name] = TopicMetadata(facts.topic_id, facts.partitions, racks if any(racks) else ())
    return found
