"""The one module from which a program imports errors."""

from __future__ import annotations

import braidlog.errors
from braidlog.client import errors as client_errors
from braidlog.core import protocol_errors
from braidlog.core.errors import BraidlogError, UserError


def test_every_error_that_a_client_raises_is_here() -> None:
    for module in (client_errors, protocol_errors):
        raised = {name for name, each in vars(module).items() if isinstance(each, type) and issubclass(each, Exception)}
        public = {name for name in raised if not name.startswith("_")}
        assert public <= set(braidlog.errors.__all__)
    assert {"BraidlogError", "UserError", "ClientError", "ProtocolError"} <= set(braidlog.errors.__all__)


def test_each_is_the_very_class_that_is_raised() -> None:
    assert braidlog.errors.UserError is UserError
    assert braidlog.errors.BraidlogError is BraidlogError
    assert braidlog.errors.NotControllerError is protocol_errors.NotControllerError
