from braidlog.client.cluster_view import EMPTY, NO_LEADER, PartitionView, view_of, with_leader
from braidlog.core.protocol_errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from braidlog.wire.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = b"i" * 16


def _response(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=each, host=f"h{each}", port=9092) for each in brokers],
        controller_id=1,
        cluster_id="c",
        topics=list(topics),
    )


def _topic(name: str, *leaders: tuple[int, int], topic_id: bytes = ID, error: int = 0) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            partition_index=at, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[1]
        )
        for at, (leader, epoch) in enumerate(leaders)
    ]
    # Brokers may list partitions in any order.
    return MetadataResponseTopic(name=name, topic_id=topic_id, error_code=error, partitions=partitions[::-1])


def test_a_view_has_what_the_response_says() -> None:
    view = view_of(_response(_topic("t", (1, 0), (NO_LEADER, 3))), EMPTY, frozenset())
    topic = view.topic("t")
    assert topic is not None
    assert [each.index for each in topic.partitions] == [0, 1]
    assert topic.leader_of(0) == 1
    assert topic.leader_of(1) == NO_LEADER
    assert topic.leader_of(7) == NO_LEADER
    assert topic.available == (0,)
    assert view.brokers[2].host == "h2"
    assert view.partition("t", 2) is None
    assert view.partition("u", 0) is None


def test_a_partition_without_a_leader_says_why() -> None:
    topic = view_of(_response(_topic("t", (1, 4), (NO_LEADER, 3))), EMPTY, frozenset()).topics["t"]
    led = topic.partition_with_leader(0)
    assert isinstance(led, PartitionView)
    assert (led.leader, led.leader_epoch) == (1, 4)
    leaderless = topic.partition_with_leader(1)
    assert isinstance(leaderless, LeaderNotAvailableError)
    assert "t-1" in str(leaderless)
    missing = topic.partition_with_leader(-1)
    assert isinstance(missing, UnknownTopicOrPartitionError)
    assert "topic t has no partition -1; it has 2, counted from 0" in str(missing)


def test_a_topic_with_an_error_is_seen_but_does_not_exist() -> None:
    view = view_of(_response(_topic("t", error=UnknownTopicOrPartitionError.code)), EMPTY, frozenset())
    assert view.topic("t") is None
    assert view.topics["t"].error_code == UnknownTopicOrPartitionError.code


def test_topics_that_are_still_wanted_stay() -> None:
    before = view_of(_response(_topic("kept", (1, 0)), _topic("gone", (1, 0))), EMPTY, frozenset())
    view = view_of(_response(_topic("new", (1, 0))), before, frozenset({"kept", "new"}))
    assert sorted(view.topics) == ["kept", "new"]


def test_a_leader_of_an_older_epoch_is_passed_over() -> None:
    before = view_of(_response(_topic("t", (2, 5))), EMPTY, frozenset())
    view = view_of(_response(_topic("t", (1, 4))), before, frozenset())
    assert view.topics["t"].leader_of(0) == 2
    assert view_of(_response(_topic("t", (1, 6))), before, frozenset()).topics["t"].leader_of(0) == 1


def test_who_knows_no_epochs_is_believed() -> None:
    before = view_of(_response(_topic("t", (2, 5))), EMPTY, frozenset())
    assert view_of(_response(_topic("t", (1, -1))), before, frozenset()).topics["t"].leader_of(0) == 1


def test_epochs_start_again_with_a_new_topic_of_the_same_name() -> None:
    before = view_of(_response(_topic("t", (2, 5))), EMPTY, frozenset())
    view = view_of(_response(_topic("t", (1, 0), topic_id=b"j" * 16)), before, frozenset())
    assert view.topics["t"].leader_of(0) == 1


def test_a_named_leader_counts_when_it_is_news() -> None:
    view = view_of(_response(_topic("t", (1, 5), (1, 5))), EMPTY, frozenset())
    moved = with_leader(view, "t", 1, 2, 6)
    assert moved.topics["t"].leader_of(1) == 2
    assert moved.topics["t"].leader_of(0) == 1
    assert view.topics["t"].leader_of(1) == 1
    assert with_leader(view, "t", 1, 2, 5) is view
    assert with_leader(view, "t", 1, 9, 6) is view
    assert with_leader(view, "u", 1, 2, 6) is view
