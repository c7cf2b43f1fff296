from __future__ import annotations

import pytest

from braidlog.coordinator.group.classic.group import ClassicGroup
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.group import Group

OFFERED = [name for name in vars(Group) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [ClassicGroup, ConsumerGroup])
def test_each_kind_of_group_offers_all_that_a_group_does(kind: type) -> None:
    assert len(OFFERED) >= 12
    assert [name for name in OFFERED if not hasattr(kind, name)] == []
