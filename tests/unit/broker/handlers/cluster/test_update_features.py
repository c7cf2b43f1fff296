"""UpdateFeatures asked of a whole broker in memory."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.core.protocol_errors import (
    FeatureUpdateFailedError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    UnsupportedVersionError,
)
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_groups import ListGroupsRequest
from braidlog.wire.generated.list_transactions import ListTransactionsRequest
from braidlog.wire.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_cluster

UPGRADE, SAFE, UNSAFE = 1, 2, 3
NEWER = {"group.version": 1, "transaction.version": 2}


async def update(broker: AskedBroker, kind: int, version: int = 2, validate_only: bool = False, **levels: int) -> Any:
    updates = [
        FeatureUpdateKey(feature=name.replace("_", "."), max_version_level=level) for name, level in levels.items()
    ]
    for each in updates:
        if version >= 1:
            each.upgrade_type = kind
        else:
            each.allow_downgrade = kind != UPGRADE
    request = UpdateFeaturesRequest(timeout_ms=2000, feature_updates=updates, validate_only=validate_only)
    return await broker.ask(request, version)


async def finalized(broker: AskedBroker) -> dict[str, int]:
    answer = await broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    return {each.name: each.max_version_level for each in answer.finalized_features}


async def member(broker: AskedBroker, **fields: Any) -> Any:
    beat = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
    return await broker.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", **beat), 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_down_and_up_again_in_every_version(version: int) -> None:
    @on_broker
    async def body(broker: AskedBroker) -> None:
        assert await finalized(broker) == NEWER
        answer = await update(broker, SAFE, version, group_version=0, transaction_version=0)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert [each.error_code for each in answer.results] == ([0, 0] if version < 2 else [])
        assert await finalized(broker) == {}
        assert (await member(broker)).error_code == UnsupportedVersionError.code
        answer = await update(broker, UPGRADE, version, group_version=1)
        assert answer.error_code == 0
        assert await finalized(broker) == {"group.version": 1}

    body()


@on_broker
async def test_a_part_that_is_wrong_spoils_all_only_from_version_2_on(broker: AskedBroker) -> None:
    answer = await update(broker, SAFE, 1, group_version=0, metadata_version=20)
    assert [each.error_code for each in answer.results] == [0, InvalidUpdateVersionError.code]
    assert await finalized(broker) == {"transaction.version": 2}
    answer = await update(broker, UPGRADE, 2, group_version=1, metadata_version=20)
    assert answer.error_code == InvalidUpdateVersionError.code
    assert "there is no feature 'metadata.version'" in answer.error_message
    assert await finalized(broker) == {"transaction.version": 2}
    assert (await update(broker, UPGRADE, 2)).error_code == InvalidRequestError.code


@on_broker
async def test_only_checking_changes_nothing(broker: AskedBroker) -> None:
    assert (await update(broker, SAFE, 1, validate_only=True, group_version=0)).results[0].error_code == 0
    assert (await update(broker, UPGRADE, 1, validate_only=True, group_version=0)).results[0].error_code == 95
    assert await finalized(broker) == NEWER


@on_broker
async def test_members_stand_in_the_way_of_a_safe_downgrade(broker: AskedBroker) -> None:
    await broker.create("t", 1)
    await broker.await_coordinator("g")
    assert (await member(broker)).error_code == 0
    for validate_only in (True, False):
        refused = await update(broker, SAFE, validate_only=validate_only, group_version=0)
        assert refused.error_code == FeatureUpdateFailedError.code
        assert "group g is with members of the newer protocol: restart these" in refused.error_message
    assert await finalized(broker) == NEWER
    # The other feature is none of theirs.
    assert (await update(broker, SAFE, transaction_version=0)).error_code == 0
    assert (await update(broker, UNSAFE, group_version=0)).error_code == 0
    (group,) = (await broker.ask(ListGroupsRequest(), 5)).groups
    assert (group.group_id, group.group_type, group.group_state) == ("g", "classic", "Empty")
    assert (await member(broker)).error_code == UnsupportedVersionError.code


@on_broker
async def test_an_empty_group_is_converted(broker: AskedBroker) -> None:
    await broker.create("t", 1)
    await broker.await_coordinator("g")
    await member(broker)
    await member(broker, member_epoch=-1)
    assert (await update(broker, SAFE, group_version=0)).error_code == 0
    (group,) = (await broker.ask(ListGroupsRequest(), 5)).groups
    assert (group.group_type, group.group_state) == ("classic", "Empty")


@on_broker
async def test_open_transactions_stand_in_the_way_of_the_end_of_a_downgrade(broker: AskedBroker) -> None:
    await broker.create("t", 1)
    await broker.await_coordinator("x", kind=1)
    producer = await broker.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=900_000), 4)
    opening = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    (added,) = (await broker.ask(opening, 3)).results_by_topic_v3_and_below
    assert added.results_by_partition[0].partition_error_code == 0
    unfinished = await update(broker, SAFE, transaction_version=0)
    assert unfinished.error_code == FeatureUpdateFailedError.code
    assert "transaction x is open since before: wait for the end, abort" in unfinished.error_message
    # The feature is off, and Kafka still kept out.
    assert await finalized(broker) == {"group.version": 1, "braidlog.downgrade": 1}
    assert (await update(broker, UNSAFE, transaction_version=0)).error_code == 0
    assert await finalized(broker) == {"group.version": 1}
    (state,) = (await broker.ask(ListTransactionsRequest(), 1)).transaction_states
    assert state.transaction_state == "CompleteAbort"


@on_broker
async def test_an_alter_of_the_cluster(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    wanted = {"feature_updates": [{"feature": "group.version", "max_version_level": 0, "upgrade_type": SAFE}]}
    restricted.rules(allow_cluster(AclOperation.DESCRIBE))
    assert await restricted.ask("UpdateFeatures", 1, **wanted) == "CLUSTER_AUTHORIZATION_FAILED"
    assert await finalized(broker) == NEWER
    restricted.rules(allow_cluster(AclOperation.ALTER))
    assert await restricted.ask("UpdateFeatures", 1, **wanted) == "OK"


@on_broker
async def test_it_goes_to_the_controller(broker: AskedBroker) -> None:
    broker.parts.controller._in_office = False
    assert (await update(broker, SAFE, group_version=0)).error_code == NotControllerError.code
    broker.parts.controller._in_office = True


@on_broker
async def test_every_broker_advertises_it(broker: AskedBroker) -> None:
    answer = await broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert [(each.min_version, each.max_version) for each in answer.api_keys if each.api_key == ApiKey.UPDATE_FEATURES]
