from __future__ import annotations

from braidlog.coordinator.group.settings import GroupOverrides, GroupSettings


def test_a_group_may_set_its_own_timeouts_one_by_one() -> None:
    settings = GroupSettings(
        consumer_session_timeout_ms=45_000,
        consumer_heartbeat_interval_ms=5_000,
        overrides={"s": GroupOverrides(session_timeout_ms=1), "h": GroupOverrides(heartbeat_interval_ms=2)},
    )
    assert [settings.session_timeout_of(group) for group in ("s", "h", "other")] == [1, 45_000, 45_000]
    assert [settings.heartbeat_interval_of(group) for group in ("s", "h", "other")] == [5_000, 2, 5_000]
