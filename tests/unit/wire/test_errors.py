from __future__ import annotations

import pytest

from braidlog.wire.errors import (
    EncodeError,
    MalformedError,
    TooManyElementsError,
    refuse,
    refuse_null,
    required_text,
)


def test_a_refusal_names_field_and_version() -> None:
    with pytest.raises(EncodeError, match=r"Fetch\.rack is set, but version 3 .*use another version"):
        refuse("Fetch.rack", 3)
    with pytest.raises(EncodeError, match=r"Fetch\.rack is None, which version 3 cannot carry"):
        refuse_null("Fetch.rack", 3)


def test_required_text_is_passed_on() -> None:
    assert required_text("", "f", 1) == ""
    with pytest.raises(EncodeError, match="f is None"):
        required_text(None, "f", 1)


def test_too_many_elements_are_the_peers_fault() -> None:
    assert issubclass(TooManyElementsError, MalformedError)
    assert not issubclass(EncodeError, MalformedError)
