from __future__ import annotations

from braidlog.coordinator.group.classic.member import ClassicGroupMember, MemberProtocol

MEMBER = ClassicGroupMember(
    "m", None, "client", "/host", 1, 2, [MemberProtocol("range", b"r"), MemberProtocol("sticky", b"s")]
)


def test_metadata_is_that_of_the_chosen_protocol() -> None:
    assert MEMBER.metadata_of("sticky") == b"s"
    assert MEMBER.metadata_of("other") == b""
    assert MEMBER.metadata_of(None) == b""


def test_a_member_votes_for_the_first_of_its_protocols_that_all_support() -> None:
    assert MEMBER.preferred({"sticky": 2, "range": 2}) == "range"
    assert MEMBER.preferred({"sticky": 2}) == "sticky"
    assert MEMBER.preferred({"other": 2}) is None
