from __future__ import annotations

import pytest

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.core.protocol_errors import NONE, StaleBrokerEpochError, StaleControllerEpochError
from support.control_requests import leader_and_isr, led_by, stop_replica, update_metadata


@pytest.mark.parametrize(("broker_epoch", "error"), [(-1, NONE), (6, StaleBrokerEpochError.code), (7, NONE), (8, NONE)])
def test_a_request_for_an_earlier_registration_is_refused(broker_epoch: int, error: int) -> None:
    epochs = ControlEpochs(lambda: 7)
    assert epochs.check(leader_and_isr("orders", {0: led_by(1)}, broker_epoch=broker_epoch)) == error
    assert epochs.check(update_metadata(broker_epoch=broker_epoch)) == error
    assert epochs.check(stop_replica("orders", 0, broker_epoch=broker_epoch)) == error


def test_an_older_controller_is_refused_whatever_the_newer_one_asked() -> None:
    epochs = ControlEpochs(lambda: 7)
    assert epochs.check(update_metadata(controller_epoch=3)) == NONE
    assert epochs.check(update_metadata(controller_epoch=3)) == NONE
    assert epochs.check(stop_replica("orders", 0, controller_epoch=2)) == StaleControllerEpochError.code
    assert epochs.check(leader_and_isr("orders", {0: led_by(1)}, controller_epoch=4)) == NONE
    assert epochs.check(update_metadata(controller_epoch=3)) == StaleControllerEpochError.code


def test_a_request_for_another_registration_tells_nothing_of_its_controller() -> None:
    epochs = ControlEpochs(lambda: 7)
    assert epochs.check(update_metadata(controller_epoch=9, broker_epoch=1)) == StaleBrokerEpochError.code
    assert epochs.check(update_metadata(controller_epoch=1)) == NONE


def test_the_first_request_for_each_registration_is_heard_of_once() -> None:
    epoch = 7
    epochs = ControlEpochs(lambda: epoch)
    heard: list[int] = []
    epochs.on_first_request = lambda: heard.append(epoch)
    assert epochs.check(update_metadata(broker_epoch=6)) == StaleBrokerEpochError.code
    assert heard == []
    for broker_epoch in (7, -1, 7):
        epochs.check(update_metadata(broker_epoch=broker_epoch))
    assert heard == [7]
    # The controller hears of a registration before the broker knows that it has worked.
    epochs.check(update_metadata(broker_epoch=9))
    epoch = 9
    epochs.check(update_metadata(broker_epoch=9))
    assert heard == [7, 7]
    # The next controller does not know what its predecessor had not told yet.
    for controller_epoch in (2, 2, 1):
        epochs.check(update_metadata(controller_epoch=controller_epoch, broker_epoch=9))
    assert heard == [7, 7, 9]
