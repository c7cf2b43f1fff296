from __future__ import annotations

import pytest

from braidlog.config.topic_names import collisions, has_collision_characters, is_internal, problem_with, validate_name
from braidlog.core.protocol_errors import InvalidTopicError


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "...", "x" * 249, "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    assert problem_with(name) is None
    validate_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_illegal_names(name: str) -> None:
    with pytest.raises(InvalidTopicError):
        validate_name(name)


def test_names_that_differ_in_dot_and_underscore_collide() -> None:
    assert collisions("a.b", ["a_b", "a.b", "ab", "a-b"]) == ["a_b"]
    assert collisions("a_b.c", ["a.b_c", "a_b_c"]) == ["a.b_c", "a_b_c"]
    assert has_collision_characters("a.b")
    assert not has_collision_characters("a-b")


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__mine")
