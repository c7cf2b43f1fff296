"""A failure is raised by whoever looks at its result, and told of to whoever asks for errors."""

from __future__ import annotations

import pytest

from braidlog.client.admin.results import Results
from braidlog.client.errors import NoConnection
from braidlog.core.protocol_errors import InvalidTopicError, TopicAlreadyExistsError

TAKEN = TopicAlreadyExistsError("topic b: it exists already")
BAD = InvalidTopicError("topic c!: no")
MIXED: Results[str, int] = Results({"a": 1, "b": TAKEN, "c!": BAD})


def test_results_are_a_mapping_that_raises() -> None:
    assert MIXED["a"] == 1
    assert MIXED.get("a") == 1
    assert MIXED.get("never asked") is None
    assert list(MIXED) == ["a", "b", "c!"]
    assert len(MIXED) == 3
    assert "b" in MIXED
    for look in (lambda: MIXED["b"], lambda: MIXED.get("b"), lambda: list(MIXED.values())):
        with pytest.raises(TopicAlreadyExistsError):
            look()
    with pytest.raises(KeyError):
        MIXED["never asked"]


def test_failures_can_be_looked_at() -> None:
    assert MIXED.errors == {"b": TAKEN, "c!": BAD}
    assert MIXED.succeeded == {"a": 1}
    assert MIXED.outcomes == {"a": 1, "b": TAKEN, "c!": BAD}
    assert "TopicAlreadyExistsError" in repr(MIXED)
    gone = NoConnection("away")
    assert Results({1: gone}).errors == {1: gone}


def test_all_or_the_first_error_with_the_others() -> None:
    fine: Results[str, int] = Results({"a": 1, "b": 2})
    assert fine.raise_for_errors() is fine
    assert fine == {"a": 1, "b": 2}
    for _ in range(2):
        with pytest.raises(TopicAlreadyExistsError) as raised:
            MIXED.raise_for_errors()
        assert raised.value.__notes__ == ["1 more of 3 failed:", "  INVALID_TOPIC_EXCEPTION: topic c!: no"]
    alone: Results[str, int] = Results({"a": 1, "b": TopicAlreadyExistsError("b")})
    with pytest.raises(TopicAlreadyExistsError) as raised:
        alone.raise_for_errors()
    assert not hasattr(raised.value, "__notes__")
