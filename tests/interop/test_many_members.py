"""Three hundred members that join one group at the same moment."""

from __future__ import annotations

from support.broker import Broker
from support.many_members import UNKNOWN_MEMBER_ID, ManyMembers
from support.offset_requests import find_coordinator

MEMBERS = 300


def test_a_crowd_settles_and_nobody_is_unknown(quick_broker: Broker) -> None:
    """Without an initial delay, so the group is rebalanced again and again while they come."""
    find_coordinator(quick_broker.port, "crowd")
    crowd = ManyMembers(quick_broker.port, "crowd", MEMBERS)
    took = crowd.settle(within_s=60)
    print(f"{MEMBERS} members settled within {took:.1f} s: {dict(crowd.answers)}")
    assert {code for _, code in crowd.answers} <= {0, 27, 79}
    assert UNKNOWN_MEMBER_ID not in {code for _, code in crowd.answers}
