from __future__ import annotations

from braidlog.cluster.features import DOWNGRADE, FEATURES, MARKER, NEWEST, SUPPORTED, is_ours


def test_what_is_supported_begins_with_being_off() -> None:
    assert {name: (feature.lowest, feature.highest) for name, feature in SUPPORTED.items()} == {
        "group.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert dict(NEWEST) == {feature.name: feature.highest for feature in FEATURES}
    assert DOWNGRADE not in SUPPORTED


def test_our_brokers_are_known_by_their_registration() -> None:
    assert is_ours({MARKER: (1, 1)})
    assert not is_ours({"group.version": (1, 1)})
