from __future__ import annotations

import pytest

from braidlog.broker.handlers.cluster.find_coordinator import FindCoordinatorHandler
from braidlog.core.protocol_errors import CoordinatorNotAvailableError, InvalidRequestError
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.metadata import MetadataRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_group


@on_broker
async def test_the_first_question_makes_the_internal_topic(broker: AskedBroker) -> None:
    for kind, topic in ((0, "__consumer_offsets"), (1, "__transaction_state")):
        answer = await broker.ask(FindCoordinatorRequest(key="k", key_type=kind), 3)
        assert (answer.error_code, answer.error_message) == (0, "NONE")
        assert (answer.node_id, answer.host, answer.port) == (1, "simulated", 9092)
        assert topic in {each.name for each in (await broker.ask(MetadataRequest(topics=None))).topics}


@on_broker
async def test_many_keys_are_answered_in_their_order(broker: AskedBroker) -> None:
    answer = await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["b", "a", "b"]), 4)
    assert [(each.key, each.node_id, each.error_code) for each in answer.coordinators] == [
        ("b", 1, 0),
        ("a", 1, 0),
        ("b", 1, 0),
    ]


@on_broker
async def test_other_kinds_of_keys_are_refused_one_by_one(broker: AskedBroker) -> None:
    answer = await broker.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["a", "b"]), 4)
    assert [each.error_code for each in answer.coordinators] == [InvalidRequestError.code] * 2
    answer = await broker.ask(FindCoordinatorRequest(key="a", key_type=9), 3)
    assert answer.error_code == InvalidRequestError.code


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_failure_in_the_form_of_each_version(version: int) -> None:
    error = CoordinatorNotAvailableError("later")
    answer = FindCoordinatorHandler.error_response(FindCoordinatorRequest(coordinator_keys=["a"]), version, error)
    (found,) = answer.coordinators if version >= 4 else (answer,)
    assert (found.error_code, found.error_message, found.node_id, found.port) == (error.code, "later", -1, -1)


@on_broker
async def test_each_key_has_its_own_refusal_and_nothing_is_created_for_it(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    refused = "GROUP_AUTHORIZATION_FAILED"
    keys = {"key_type": 0, "coordinator_keys": ["mine", "not"]}
    assert await restricted.ask("FindCoordinator", 4, **keys) == f"[mine {refused}, not {refused}]"
    assert await restricted.ask("FindCoordinator", 3, key="not") == refused
    assert "__consumer_offsets" not in broker.parts.metadata_cache.image.topics
    restricted.rules(allow_group("mine", AclOperation.READ))
    assert await restricted.ask("FindCoordinator", 4, **keys) == f"[mine, not {refused}]"
    assert "__consumer_offsets" in broker.parts.metadata_cache.image.topics
