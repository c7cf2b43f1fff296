"""What the interface itself does; `support.store_contract` has what every store behind it promises."""

from __future__ import annotations

import pytest

from braidlog.cluster.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    InvalidPathError,
    LeaseExpiredError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionLease,
    SetData,
    StoreError,
    check_path,
    request_bytes,
)
from braidlog.core.clock import ManualClock


def test_a_lease_counts_from_the_sending_of_what_was_answered() -> None:
    clock = ManualClock()
    lease = SessionLease(clock.monotonic, 10.0)
    clock.advance(4)
    sent = clock.monotonic()
    clock.advance(4)
    lease.answered(sent)
    assert lease.remaining_s() == 6
    clock.advance(5.9)
    lease.check()
    clock.advance(0.1)
    assert not lease.valid()
    with pytest.raises(LeaseExpiredError):
        lease.check()


def test_answers_out_of_order_never_shorten_a_lease() -> None:
    clock = ManualClock()
    lease = SessionLease(clock.monotonic, 10.0)
    lease.answered(3.0)
    lease.answered(1.0)
    assert lease.deadline == 13.0


def test_a_lease_that_ran_out_goes_on_with_an_answer_but_one_that_ended_does_not() -> None:
    clock = ManualClock()
    lease = SessionLease(clock.monotonic, 10.0)
    clock.advance(11)
    assert not lease.valid()
    lease.answered(clock.monotonic())
    assert lease.valid()
    lease.end()
    lease.answered(clock.monotonic())
    assert not lease.valid()
    assert lease.remaining_s() == 0


def test_a_request_is_as_long_as_its_paths_and_data_at_least() -> None:
    operations = [Create("/ä", bytes(100)), SetData("/b", bytes(50)), Delete("/c"), Check("/d", 1)]
    assert request_bytes(operations) >= 3 + 100 + 2 + 50 + 2 + 2
    assert request_bytes(operations) == sum(request_bytes([each]) for each in operations)


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a.b", "/a/...", "/brokers/topics/ä"])
def test_valid_paths(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a\0b", "/a\nb"])
def test_a_path_that_breaks_the_rules_is_named(path: str) -> None:
    with pytest.raises(InvalidPathError) as refused:
        check_path(path)
    assert path.strip("\0\n") in str(refused.value) or repr(path) in str(refused.value)


@pytest.mark.parametrize(
    "error",
    [
        NoNodeError("/a"),
        NodeExistsError("/a"),
        BadVersionError("/a", 3, 5),
        NotEmptyError("/a"),
        NoChildrenForEphemeralsError("/a"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_refusals_name_the_node(error: StoreError) -> None:
    assert "/a" in str(error)


def test_a_wrong_version_names_both() -> None:
    assert "3" in str(BadVersionError("/a", 3, 5))
    assert "5" in str(BadVersionError("/a", 3, 5))
