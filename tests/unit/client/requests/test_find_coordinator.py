"""Several keys go in one request, or in one each to an older broker; either way each key has its answer."""

from __future__ import annotations

from braidlog.client.requests.find_coordinator import (
    GROUP,
    TRANSACTION,
    find_coordinator_requests,
    found_coordinators,
)
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorResponse


def test_one_request_for_all_keys() -> None:
    (request,) = find_coordinator_requests(4, TRANSACTION, ["a", "b"])
    assert (request.key_type, request.coordinator_keys) == (1, ["a", "b"])
    answers = [Coordinator(key="a", node_id=1), Coordinator(key="b", error_code=15)]
    assert found_coordinators(request, FindCoordinatorResponse(coordinators=answers)) == answers


def test_a_key_that_is_left_out_has_no_coordinator_now() -> None:
    (request,) = find_coordinator_requests(4, GROUP, ["a", "b"])
    first, second = found_coordinators(request, FindCoordinatorResponse(coordinators=[Coordinator(key="b", node_id=1)]))
    assert (first.key, first.error_code) == ("a", 15)
    assert (second.key, second.error_code) == ("b", 0)
    refused = found_coordinators(request, FindCoordinatorResponse(error_code=30))
    assert [each.error_code for each in refused] == [30, 30]


def test_one_request_each_for_an_older_broker() -> None:
    first, second = find_coordinator_requests(3, GROUP, ["a", "b"])
    assert [first.key, second.key] == ["a", "b"]
    response = FindCoordinatorResponse(node_id=7, host="h", port=9, error_code=0, error_message="m")
    (found,) = found_coordinators(second, response)
    assert (found.key, found.node_id, found.host, found.port, found.error_message) == ("b", 7, "h", 9, "m")
