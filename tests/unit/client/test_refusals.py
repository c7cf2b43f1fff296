"""What is said of a refusal: what it was about, the reason, and what to do."""

from __future__ import annotations

import pytest

from braidlog.client.refusals import check, refusal
from braidlog.core.protocol_errors import GroupIdNotFoundError, NoReassignmentInProgressError, TopicAlreadyExistsError


def test_our_reason_where_the_broker_gives_none() -> None:
    told = refusal(TopicAlreadyExistsError.code, "topic a")
    assert isinstance(told, TopicAlreadyExistsError)
    assert told.message == (
        "topic a: it exists already; describe it to see whether it will do (--if-not-exists makes that no error)"
    )


def test_the_brokers_reason_is_followed_by_what_to_do() -> None:
    told = refusal(NoReassignmentInProgressError.code, "orders-0", "Nothing moves.")
    assert told.message == "orders-0: Nothing moves; there is nothing to cancel"
    # One that says it itself is left alone.
    told = refusal(GroupIdNotFoundError.code, "group g", "no such group; see the list")
    assert told.message == "group g: no such group; see the list"


def test_a_code_without_advice() -> None:
    assert refusal(70, "it").message == "it"
    assert refusal(70, "it", "because").message == "it: because"
    check(0, "it")
    with pytest.raises(GroupIdNotFoundError):
        check(GroupIdNotFoundError.code, "group g")
