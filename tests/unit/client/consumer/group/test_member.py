from __future__ import annotations

import pytest

from braidlog.client.consumer.group.classic_member import ClassicMember


def member(instance_id: str | None = None) -> ClassicMember:
    return ClassicMember("g", instance_id, 3_000, 9_000)


def test_moves_that_make_no_sense_are_refused_with_a_history() -> None:
    one = member()
    with pytest.raises(RuntimeError, match="group g cannot go from UNJOINED to STABLE; it came by UNJOINED"):
        one.taken()
