"""Topics by name or id, or all of them."""

from __future__ import annotations

from braidlog.client.requests.metadata import describe_topics_request, metadata_request


def test_topics_by_name_or_all() -> None:
    request = metadata_request(["a", "b"], create_topics=True)
    assert request.topics is not None
    assert [each.name for each in request.topics] == ["a", "b"]
    assert request.allow_auto_topic_creation
    assert metadata_request(None, create_topics=False).topics is None
    assert metadata_request([], create_topics=False).topics == []


def test_topics_by_id_and_what_is_allowed() -> None:
    request = describe_topics_request(12, [b"i" * 16], authorized_operations=True)
    assert request.topics is not None
    assert [(each.name, each.topic_id) for each in request.topics] == [(None, b"i" * 16)]
    assert request.include_topic_authorized_operations
    assert not describe_topics_request(7, ["a"], authorized_operations=True).include_topic_authorized_operations
