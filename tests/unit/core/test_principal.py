"""Principals as people write them."""

from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from braidlog.core.principal import Principal


def test_a_principal_is_read_as_it_is_written() -> None:
    assert Principal.parse("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")
    assert str(Principal("User", "ann")) == "User:ann"


@pytest.mark.parametrize("text", ["ann", ":ann", "User:", ""])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="TYPE:NAME"):
        Principal.parse(text)
