"""Which control requests this broker still obeys: by the epoch of the controller, and of its own registration."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.cluster.control_requests import ANY_BROKER_EPOCH, ControlRequest
from braidlog.core.protocol_errors import NONE, StaleBrokerEpochError, StaleControllerEpochError


class ControlEpochs:
    """Shared by all that obeys a controller, so that the newest one is known to each."""

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self._broker_epoch = broker_epoch
        self.controller_epoch = 0
        # Called with the first request of each controller for each registration.
        self.on_first_request: Callable[[], None] | None = None
        self._known_registration = -1

    def check(self, request: ControlRequest) -> int:
        """The error of the request as a whole, or NONE; a newer controller is remembered.

        A broker epoch above our own is fine: the controller may hear of a registration before the broker does.
        """
        if request.broker_epoch != ANY_BROKER_EPOCH and request.broker_epoch < self._broker_epoch():
            return StaleBrokerEpochError.code
        if request.controller_epoch < self.controller_epoch:
            return StaleControllerEpochError.code
        registration = max(self._broker_epoch(), request.broker_epoch)
        is_first = request.controller_epoch > self.controller_epoch or registration > self._known_registration
        self.controller_epoch = request.controller_epoch
        self._known_registration = max(registration, self._known_registration)
        if is_first and self.on_first_request is not None:
            self.on_first_request()
        return NONE
