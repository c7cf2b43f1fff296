from __future__ import annotations

import pytest

from braidlog.cluster.inter_broker_protocol import NOT_SENT, feature_record_version, newest_versions
from braidlog.wire.apis import APIS
from braidlog.wire.generated.api_keys import ApiKey

SHOWN = (
    ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "newest"),
    [
        ("2.8-IV0", (12, 6, 4, 6, 3, NOT_SENT)),
        ("2.8", (12, 6, 5, 7, 3, NOT_SENT)),
        ("3.0-IV0", (12, 6, 5, 7, 3, 0)),
        ("3.0-IV1", (12, 7, 5, 7, 3, 0)),
        ("3.1", (13, 7, 5, 7, 3, 0)),
        ("3.2", (13, 7, 6, 7, 3, 0)),
        ("3.3", (13, 7, 6, 7, 3, 0)),
        ("3.4", (13, 7, 7, 8, 4, 0)),
        ("3.5-IV0", (14, 8, 7, 8, 4, 0)),
        ("3.5.2", (15, 8, 7, 8, 4, 0)),
        ("3.6", (15, 8, 7, 8, 4, 0)),
        ("3.7-IV3", (15, 8, 7, 8, 4, 0)),
        ("3.7", (16, 8, 7, 8, 4, 0)),
        ("3.8", (16, 8, 7, 8, 4, 0)),
        ("3.9-IV0", (17, 9, 7, 8, 4, 0)),
        ("3.9", (17, 9, 7, 8, 4, 0)),
        ("4.0-IV1", (17, 9, 7, 8, 4, 0)),
        # Older ones count as the oldest that is told apart.
        ("2.6", (12, 6, 4, 6, 3, NOT_SENT)),
        ("0.10.2", (12, 6, 4, 6, 3, NOT_SENT)),
    ],
)
def test_the_steps_are_those_of_kafka(setting: str, newest: tuple[int, ...]) -> None:
    found = newest_versions(setting)
    assert tuple(found[api] for api in SHOWN) == newest


def test_what_is_sent_is_spoken() -> None:
    for api, version in newest_versions("3.9").items():
        assert APIS[api].speaks(version), APIS[api].name


def test_the_node_of_features_is_one_that_the_oldest_peer_reads() -> None:
    assert [feature_record_version(setting) for setting in ("2.8", "3.2", "3.3-IV0", "3.9")] == [1, 1, 2, 2]
