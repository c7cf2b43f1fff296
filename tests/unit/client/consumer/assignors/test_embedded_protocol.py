"""Subscriptions and assignments as bytes: of every version, and of what no client wrote."""

from __future__ import annotations

import pytest

from braidlog.client.consumer.assignors.embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from braidlog.client.consumer.assignors.interface import Assignment, Assignor, Subscriber
from braidlog.client.consumer.assignors.strategies import all_cooperative, assignors_of
from braidlog.client.errors import SettingError
from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolSubscription
from braidlog.wire.version_prefix import version_prefixed_bytes

OWNED = (TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))


def test_a_subscription_comes_back() -> None:
    content = write_subscription(["b", "a"], b"mine", OWNED, 4, "rack")
    reported = read_subscription("m", "instance", content)
    assert reported == Subscriber("m", ("a", "b"), "instance", OWNED, 4, "rack", b"mine")
    later = b"\x00\x09" + content[2:] + b"of a later version"
    assert read_subscription("m", "instance", later) == reported


def test_a_subscription_of_the_first_version_has_less() -> None:
    content = version_prefixed_bytes(ConsumerProtocolSubscription(topics=["a"], user_data=b"x", generation_id=9), 0)
    assert read_subscription("m", None, content) == Subscriber("m", ("a",), user_data=b"x")


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x01\x00\x00"])
def test_what_is_no_subscription_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedError):
        read_subscription("m", None, content)


def test_an_assignment_comes_back() -> None:
    share = Assignment(list(OWNED), b"hint")
    assert read_assignment(write_assignment(share)) == share
    assert read_assignment(b"") == Assignment()


def test_assignors_are_chosen_by_name_class_and_instance() -> None:
    class Mine(Assignor):
        name = "mine"
        cooperative = True

    made = Mine()
    assert assignors_of([made])[0] is made
    assert [each.name for each in assignors_of("range, cooperative-sticky")] == ["range", "cooperative-sticky"]
    assert [each.name for each in assignors_of(["org.apache.kafka.clients.consumer.StickyAssignor", Mine])] == [
        "sticky",
        "mine",
    ]
    assert not all_cooperative(assignors_of("range,cooperative-sticky"))
    assert all_cooperative(assignors_of(["cooperative-sticky", Mine]))


@pytest.mark.parametrize("given", ["", "nothing", ["range", "range"], [Assignor()], [3]])
def test_what_is_no_list_of_assignors_is_refused(given: object) -> None:
    with pytest.raises(SettingError, match=r"partition\.assignment\.strategy"):
        assignors_of(given)  # type: ignore[arg-type]
