from __future__ import annotations

import dataclasses

import pytest

from braidlog import errors, policies
from braidlog.policies import AlterConfigMetadata, CreateTopicMetadata


def test_a_refusal_is_the_public_error() -> None:
    assert policies.PolicyViolationError is errors.PolicyViolationError


def test_what_a_policy_is_asked_cannot_be_changed_by_it() -> None:
    asked = CreateTopicMetadata("t", 1, 1, None, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        asked.topic = "u"  # type: ignore[misc]


def test_a_printed_change_shows_no_values() -> None:
    asked = AlterConfigMetadata("BROKER", "1", {"ssl.keystore.password": "hush"})
    assert "hush" not in repr(asked)
    assert "BROKER" in repr(asked)
