"""Subscriptions and assignments as bytes: of every version, and of what no client wrote."""

from __future__ import annotations

import pytest

from braidlog.client.consumer.assignors.choosing import all_cooperative, choose
from braidlog.client.consumer.assignors.interface import Assignor, Share, Subscriber
from braidlog.client.consumer.assignors.layouts import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from braidlog.client.errors import SettingError
from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolSubscription
from braidlog.wire.layouts import versioned

OWNED = (TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))


def test_a_subscription_comes_back() -> None:
    content = write_subscription(["b", "a"], b"mine", OWNED, 4, "rack")
    reported = read_subscription("m", "instance", content)
    assert reported == Subscriber("m", ("a", "b"), "instance", OWNED, 4, "rack", b"mine")
    later = b"\x00\x09" + content[2:] + b"of a later version"
    assert read_subscription("m", "instance", later) == reported


def test_a_subscription_of_the_first_version_says_less() -> None:
    content = versioned(ConsumerProtocolSubscription(topics=["a"], user_data=b"x", generation_id=9), 0)
    assert read_subscription("m", None, content) == Subscriber("m", ("a",), user_data=b"x")


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x01\x00\x00"])
def test_what_is_no_subscription_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedError):
        read_subscription("m", None, content)


def test_an_assignment_comes_back() -> None:
    share = Share(list(OWNED), b"hint")
    assert read_assignment(write_assignment(share)) == share
    assert read_assignment(b"") == Share()


def test_assignors_are_chosen_by_name_class_and_instance() -> None:
    class Mine(Assignor):
        name = "mine"
        cooperative = True

    made = Mine()
    assert choose([made])[0] is made
    assert [each.name for each in choose("range, cooperative-sticky")] == ["range", "cooperative-sticky"]
    assert [each.name for each in choose(["org.apache.kafka.clients.consumer.StickyAssignor", Mine])] == [
        "sticky",
        "mine",
    ]
    assert not all_cooperative(choose("range,cooperative-sticky"))
    assert all_cooperative(choose(["cooperative-sticky", Mine]))


@pytest.mark.parametrize("given", ["", "nothing", ["range", "range"], [Assignor()], [3]])
def test_what_is_no_list_of_assignors_is_refused(given: object) -> None:
    with pytest.raises(SettingError, match=r"partition\.assignment\.strategy"):
        choose(given)  # type: ignore[arg-type]
