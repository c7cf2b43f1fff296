"""The same quotas set on Apache Kafka 3.9 and on us: every answer, and the throttle times of the same traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.wire.generated.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from support.eventually import eventually
from support.log_kit import batch
from support.oracle import Pair, Side
from support.raw import versions_of

pytestmark = pytest.mark.peer

EXACT, DEFAULT, ANY = 0, 1, 2
# What the raw connections of these tests call themselves.
CLIENT = {"client-id": "raw"}
# Both take the same bytes; the answers are some moments later or earlier.
NEAR_MS = 1_500

Entity = Mapping[str, str | None]


def entry(entity: Entity | list[tuple[str, str | None]], **quotas: float | None) -> RequestEntryData:
    parts = entity.items() if isinstance(entity, Mapping) else entity
    return RequestEntryData(
        entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


def alteration(*entries: RequestEntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def question(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )


def described(side: Side) -> Any:
    return side.normal(side.ask("DescribeClientQuotas", 1, question()))


@pytest.fixture(autouse=True)
def _no_quotas(pair: Pair) -> Iterator[None]:
    """Whatever a test leaves behind is removed."""
    yield
    for side in pair.sides:
        answer: Any = side.ask("DescribeClientQuotas", 1, question())
        entries = [
            entry([(part.entity_type, part.entity_name) for part in each.entity], **{v.key: None for v in each.values})
            for each in answer.entries
        ]
        if entries:
            side.ask("AlterClientQuotas", 1, alteration(*entries))
            eventually(lambda side=side: described(side)["entries"] == [])  # type: ignore[misc]


def fill(pair: Pair) -> None:
    entities: list[Entity] = [
        {"user": "ann"},
        {"user": "ann", "client-id": "app"},
        {"user": "ann", "client-id": None},
        {"user": None},
        {"user": None, "client-id": "app"},
        {"user": "CN=a b/c, ü"},
        {"client-id": "app"},
        {"client-id": None},
    ]
    entries = [
        entry(each, producer_byte_rate=number + 1, request_percentage=2.5) for number, each in enumerate(entities)
    ]
    ips: list[Entity] = [{"ip": "10.0.0.1"}, {"ip": None}]
    entries += [entry(each, connection_creation_rate=10_000) for each in ips]
    for side in pair.sides:
        answer: Any = side.ask("AlterClientQuotas", 1, alteration(*entries))
        assert {each.error_code for each in answer.entries} == {0}
        eventually(lambda side=side: len(described(side)["entries"]) == len(entries))  # type: ignore[misc]


@pytest.mark.parametrize("version", versions_of("DescribeClientQuotas"))
def test_filters(pair: Pair, version: int) -> None:
    fill(pair)
    names: dict[str, tuple[str | None, ...]] = {
        "user": ("ann", "nobody", "CN=a b/c, ü"),
        "client-id": ("app",),
        "ip": ("10.0.0.1",),
    }
    single = [
        (kind, how, name)
        for kind, known in names.items()
        for how, name in [(DEFAULT, None), (ANY, None), *((EXACT, name) for name in known)]
    ]
    double = [(one, other) for one in single for other in single]
    for strict in (False, True):
        for components in [(), *((each,) for each in single), *double]:
            pair.compare("DescribeClientQuotas", version, question(*components, strict=strict), str(components))


@pytest.mark.parametrize(
    "components",
    [
        (("team", EXACT, "x"),),
        (("", EXACT, "x"),),
        (("user", EXACT, "x"), ("team", ANY, None)),
        (("user", 3, "x"),),
        (("user", EXACT, None),),
        (("user", EXACT, ""),),
        (("user", DEFAULT, "ann"),),
    ],
)
def test_filters_that_make_no_sense(pair: Pair, components: Any) -> None:
    fill(pair)
    pair.compare("DescribeClientQuotas", 1, question(*components))


ALTERATIONS: dict[str, RequestEntryData] = {
    "a user": entry({"user": "u"}, producer_byte_rate=1000),
    "a fraction of bytes": entry({"user": "u"}, producer_byte_rate=1000.5),
    "a fraction of time": entry({"user": "u"}, request_percentage=0.25),
    "a fraction of changes": entry({"user": "u"}, controller_mutation_rate=0.5),
    "too large": entry({"user": "u"}, producer_byte_rate=1e30),
    "an unknown quota": entry({"user": "u"}, made_up_rate=1),
    "an unknown quota removed": entry({"user": "u"}, made_up_rate=None),
    "a quota that is not there removed": entry({"user": "u"}, consumer_byte_rate=None),
    "no entity": entry({}, producer_byte_rate=1000),
    "an unknown entity": entry({"team": "t"}, producer_byte_rate=1000),
    "an empty name": entry({"user": ""}, producer_byte_rate=1000),
    "an empty client id": entry({"user": "u", "client-id": ""}, producer_byte_rate=1000),
    "a connection rate of a user": entry({"user": "u"}, connection_creation_rate=10),
    "a connection rate": entry({"ip": "127.0.0.9"}, connection_creation_rate=10),
    "a connection rate of the default": entry({"ip": None}, connection_creation_rate=10_000),
    "a connection rate that is no whole number": entry({"ip": "127.0.0.9"}, connection_creation_rate=1.5),
    "bytes of an address": entry({"ip": "127.0.0.9"}, producer_byte_rate=1000),
    "an address of a user": entry({"user": "u", "ip": "127.0.0.9"}, connection_creation_rate=10),
    "no address": entry({"ip": "no.such.host.invalid"}, connection_creation_rate=10),
    "a user's client": entry({"user": "u", "client-id": "c"}, producer_byte_rate=1000, consumer_byte_rate=2000),
    "a user's default client": entry({"user": "u", "client-id": None}, producer_byte_rate=1000),
    "the defaults": entry({"user": None, "client-id": None}, producer_byte_rate=1000),
    "nothing": entry({"user": "u"}),
}


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("version", versions_of("AlterClientQuotas"))
@pytest.mark.parametrize("what", ALTERATIONS)
def test_alterations(pair: Pair, what: str, version: int, validate_only: bool) -> None:
    request = alteration(ALTERATIONS[what], validate_only=validate_only)
    answer = pair.compare("AlterClientQuotas", version, request, what)
    if answer["entries"][0]["error_code"] == 0 and not validate_only:
        # A KRaft broker has it a moment after the controller.
        eventually(lambda: described(pair.kafka) == described(pair.ours))
    else:
        assert described(pair.ours) == described(pair.kafka)


def test_several_at_once(pair: Pair) -> None:
    """Each is answered for by itself."""
    entries = [
        entry({"user": "u"}, producer_byte_rate=1000),
        entry({"user": "v"}, made_up_rate=1000),
        entry({"ip": "127.0.0.9"}, connection_creation_rate=1.5),
        entry({"client-id": None}, request_percentage=200),
    ]
    pair.compare("AlterClientQuotas", 1, alteration(*entries))
    eventually(lambda: described(pair.kafka) == described(pair.ours))


def limit(pair: Pair, topic: str | None = None, **quotas: float) -> None:
    for side in pair.sides:
        side.ask("AlterClientQuotas", 1, alteration(entry(CLIENT, **quotas)))
        eventually(lambda side=side: described(side)["entries"] != [])  # type: ignore[misc]
    if topic is not None:
        pair.create(topic)


def throttles(pair: Pair, ask: Callable[[Side], Any], times: int) -> tuple[list[int], list[int]]:
    """What each side answers to the same requests, each on a connection of its own, which none before has muted."""
    theirs, ours = ([ask(side).throttle_time_ms for _ in range(times)] for side in pair.sides)
    return theirs, ours


def assert_near(theirs: list[int], ours: list[int]) -> None:
    for expected, actual in zip(theirs, ours, strict=True):
        assert abs(expected - actual) <= NEAR_MS, (theirs, ours)
        assert (expected > 0) == (actual > 0), (theirs, ours)


def test_throttle_times_of_producers(pair: Pair) -> None:
    pair.create("throttled-produce")
    limit(pair, producer_byte_rate=10_000)
    records = batch(bytes(40_000))
    theirs, ours = throttles(pair, lambda side: side.produce("throttled-produce", records), 5)
    assert theirs[0] == ours[0] == 0
    assert theirs[-1] > 5_000
    assert_near(theirs, ours)


def test_throttle_times_of_consumers(pair: Pair) -> None:
    pair.create("throttled-fetch")
    for side in pair.sides:
        # One batch: Kafka would cut another where the quota ends, we do not.
        side.produce("throttled-fetch", batch(bytes(60_000)))
    limit(pair, consumer_byte_rate=10_000)
    sizes: dict[Side, list[int]] = {side: [] for side in pair.sides}

    def fetch(side: Side) -> Any:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic="throttled-fetch", partitions=[wanted])],
        )
        answer: Any = side.ask("Fetch", 12, request)
        found = [part.records for topic in answer.responses for part in topic.partitions]
        sizes[side].append(sum(len(each.tobytes()) if each is not None else 0 for each in found))
        return answer

    theirs, ours = throttles(pair, fetch, 3)
    assert_near(theirs, ours)
    assert theirs[-1] > 0
    assert sizes[pair.kafka] == sizes[pair.ours]


@pytest.mark.parametrize("version", [5, 7])
def test_changes_of_topics(pair: Pair, version: int) -> None:
    """Above the burst: the newer version is refused what the older one gets and has to wait for."""
    limit(pair, controller_mutation_rate=1)
    names = [f"mutation-{version}-{number}" for number in range(3)]

    def create(side: Side) -> Any:
        topics = [CreatableTopic(name=name, num_partitions=8, replication_factor=1) for name in names]
        return side.ask("CreateTopics", version, CreateTopicsRequest(topics=topics, timeout_ms=30_000))

    answers = [create(side) for side in pair.sides]
    for side in pair.sides:
        side.ask("AlterClientQuotas", 1, alteration(entry(CLIENT, controller_mutation_rate=None)))
        eventually(lambda side=side: described(side)["entries"] == [])  # type: ignore[misc]
        side.ask(
            "DeleteTopics",
            6,
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=30_000),
        )
    codes = [sorted(topic.error_code for topic in answer.topics) for answer in answers]
    assert codes[0] == codes[1]
    assert_near([answers[0].throttle_time_ms], [answers[1].throttle_time_ms])
    assert answers[0].throttle_time_ms > 3_000


def test_topics_of_first_use(pair: Pair) -> None:
    """They take tokens: what is asked for after them is refused."""
    limit(pair, controller_mutation_rate=1)
    names = [f"first-use-{number}" for number in range(16)]

    def use(side: Side) -> Any:
        wanted = [MetadataRequestTopic(name=name) for name in names]
        return side.ask("Metadata", 9, MetadataRequest(topics=wanted, allow_auto_topic_creation=True))

    def create(side: Side) -> Any:
        topics = [CreatableTopic(name="first-use-asked", num_partitions=1, replication_factor=1)]
        return side.ask("CreateTopics", 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))

    held = [use(side).throttle_time_ms for side in pair.sides]
    for side in pair.sides:
        eventually(lambda side=side: all(topic.error_code == 0 for topic in use(side).topics))  # type: ignore[misc]
    answers = [create(side) for side in pair.sides]
    for side in pair.sides:
        side.ask("AlterClientQuotas", 1, alteration(entry(CLIENT, controller_mutation_rate=None)))
        eventually(lambda side=side: described(side)["entries"] == [])  # type: ignore[misc]
        gone = [DeleteTopicState(name=name) for name in names]
        side.ask("DeleteTopics", 6, DeleteTopicsRequest(topics=gone, timeout_ms=30_000))
    codes = [[topic.error_code for topic in answer.topics] for answer in answers]
    assert (held, codes[0], codes[1]) == ([0, 0], [89], [89])
