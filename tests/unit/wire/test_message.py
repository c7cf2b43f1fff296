from __future__ import annotations

import pytest

from braidlog.wire.errors import EncodeError, MalformedError
from braidlog.wire.generated.api_versions import ApiVersion
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


def test_what_a_version_cannot_carry() -> None:
    with pytest.raises(EncodeError, match=r"FetchPartition\.last_fetched_epoch .* version 11"):
        FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])]).encode(Writer(), 11)
    with pytest.raises(EncodeError, match=r"FetchRequest\.replica_state"):
        FetchRequest(replica_state=ReplicaState(replica_id=1)).encode(Writer(), 14)
    with pytest.raises(EncodeError, match=r"FetchRequest\.replica_id"):
        FetchRequest(replica_id=1).encode(Writer(), 15)
    with pytest.raises(EncodeError, match=r"MetadataRequest\.topics is None"):
        MetadataRequest(topics=None).encode(Writer(), 0)
    with pytest.raises(EncodeError, match=r"MetadataRequestTopic\.name is None"):
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]).encode(Writer(), 9)
    # Ignorable fields are left out silently.
    MetadataResponse(error_code=3, cluster_id="x").encode(Writer(), 0)


def test_null_and_empty_arrays_differ() -> None:
    for topics in ([], None):
        writer = Writer()
        MetadataRequest(topics=topics).encode(writer, 9)
        assert MetadataRequest.decode(Reader(writer.getvalue()), 9).topics == topics
    assert MetadataRequest().topics == []
    assert MetadataRequest().topics is not MetadataRequest().topics


def test_messages_compare_and_print_by_their_fields() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert FetchPartition() != ReplicaState()
    assert repr(ApiVersion(api_key=2)) in (
        "ApiVersion(api_key=2, min_version=0, max_version=0)",
        "ApiVersion(api_key=2, max_version=0, min_version=0)",
    )


def test_an_unknown_tagged_field_is_skipped() -> None:
    writer = Writer()
    ReplicaState(replica_id=4).encode(writer, 15)
    grown = writer.getvalue()[:-1] + b"\x01\x63\x02hi"
    assert ReplicaState.decode(Reader(grown), 15) == ReplicaState(replica_id=4)


def test_a_tagged_field_must_fill_its_size() -> None:
    request = FetchRequest(cluster_id="abc")
    writer = Writer()
    request.encode(writer, 12)
    content = writer.getvalue()
    assert content.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(MalformedError, match="tagged field ends"):
        FetchRequest.decode(Reader(content[:-6] + b"\x00\x05\x04abc!"), 12)
