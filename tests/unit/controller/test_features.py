from __future__ import annotations

import pytest

from braidlog.cluster.features import DOWNGRADE, MARKER, NEWEST
from braidlog.cluster.image import BrokerInfo
from braidlog.controller.features import FeatureUpdate, UpgradeType, decide
from braidlog.core.protocol_errors import InvalidRequestError, InvalidUpdateVersionError
from braidlog.core.types import BrokerId

OURS = {BrokerId(1): BrokerInfo(BrokerId(1), 1, (), features={MARKER: (1, 1)})}
MIXED = {**OURS, BrokerId(10): BrokerInfo(BrokerId(10), 1, ())}
SAFE, UNSAFE = UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
ALL_DOWN = [FeatureUpdate("group.version", 0, SAFE), FeatureUpdate("transaction.version", 0, SAFE)]


def test_an_upgrade_finalises_what_is_asked_for() -> None:
    decision = decide({}, [FeatureUpdate("group.version", 1), FeatureUpdate("transaction.version", 2)], OURS)
    assert (decision.levels, decision.is_downgrade, decision.first_error) == (NEWEST, False, None)


def test_beside_brokers_of_another_kind_nothing_goes_up_and_all_may_go_down() -> None:
    decision = decide({}, [FeatureUpdate("group.version", 1)], MIXED)
    error = decision.first_error
    assert isinstance(error, InvalidUpdateVersionError)
    assert "brokers 10 are not braidlog's" in error.message
    assert decision.levels == {}
    assert decide(NEWEST, ALL_DOWN, MIXED).first_error is None


@pytest.mark.parametrize(
    ("update", "says"),
    [
        (FeatureUpdate("metadata.version", 20), "there is no feature 'metadata.version'"),
        (FeatureUpdate("", 1), "there is no feature ''"),
        (FeatureUpdate(DOWNGRADE, 1), "there is no feature"),
        (FeatureUpdate("group.version", 2), "levels 0 to 1, not 2"),
        (FeatureUpdate("group.version", -1), "cannot be less than 0"),
        (FeatureUpdate("transaction.version", 1), "ask for a downgrade"),
        (FeatureUpdate("group.version", 1, 0), "upgrade type"),
        (FeatureUpdate("group.version", 1, 4), "upgrade type"),
    ],
)
def test_what_is_refused(update: FeatureUpdate, says: str) -> None:
    decision = (
        decide({"transaction.version": 2}, [update, FeatureUpdate("transaction.version", 2)], OURS)
        if (update.name != "transaction.version")
        else decide({"transaction.version": 2}, [update], OURS)
    )
    error = decision.errors[update.name]
    assert isinstance(error, InvalidUpdateVersionError)
    assert says in error.message
    # What is right is done all the same, where the version of the request lets it.
    assert decision.levels == {"transaction.version": 2}


def test_a_downgrade_does_not_go_up() -> None:
    error = decide({}, [FeatureUpdate("group.version", 1, SAFE)], OURS).first_error
    assert error is not None
    assert error.message == "Can't downgrade to a newer version."


@pytest.mark.parametrize(("kind", "guard"), [(SAFE, 1), (UNSAFE, 2)])
def test_a_downgrade_is_guarded_until_it_ends(kind: UpgradeType, guard: int) -> None:
    decision = decide(NEWEST, [FeatureUpdate("group.version", 0, kind)], OURS)
    assert (decision.is_downgrade, decision.is_safe) == (True, kind == SAFE)
    assert decision.levels == {"transaction.version": 2}
    assert decision.under_way() == {"transaction.version": 2, DOWNGRADE: guard}


def test_one_that_was_interrupted_goes_on_when_asked_again() -> None:
    decision = decide({DOWNGRADE: 1}, ALL_DOWN, OURS)
    assert (decision.is_downgrade, decision.levels) == (True, {})
    # An upgrade makes it undone.
    back = decide({DOWNGRADE: 1}, [FeatureUpdate("group.version", 1)], OURS)
    assert (back.is_downgrade, back.levels) == (False, {"group.version": 1})


def test_what_is_so_already_changes_nothing() -> None:
    decision = decide({}, ALL_DOWN, OURS)
    assert (decision.is_downgrade, decision.levels, decision.first_error) == (False, {}, None)
    again = decide(NEWEST, [FeatureUpdate("group.version", 1)], OURS)
    assert (again.is_downgrade, dict(again.levels), again.first_error) == (False, dict(NEWEST), None)


def test_a_request_that_makes_no_sense() -> None:
    with pytest.raises(InvalidRequestError, match="names no feature"):
        decide({}, [], OURS)
    with pytest.raises(InvalidRequestError, match="twice"):
        decide({}, [FeatureUpdate("group.version", 1), FeatureUpdate("group.version", 0)], OURS)
