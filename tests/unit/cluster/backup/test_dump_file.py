from __future__ import annotations

import hashlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cluster.backup.dump_file import DumpedNode, DumpWriter, Header, check_dump, read_dump
from braidlog.core.errors import NewerFormatError, UserError

HEADER = Header("embedded", "2026-11-18T16:00:00Z", True)
NODES = [
    DumpedNode("/brokers", b""),
    DumpedNode("/brokers/seqid", b"", 3),
    DumpedNode("/brokers/topics", b"null"),
    DumpedNode("/brokers/topics/a", b'{"version":3,"partitions":{"0":[1]}}'),
    DumpedNode("/brokers/topics/a-b", b'{ "spaced": 1 }'),
    DumpedNode("/cluster", b"\xff\x00"),
    DumpedNode("/cluster/id", b'{"version":"1","id":"abc"}'),
]


def written(nodes: list[DumpedNode] = NODES, header: Header = HEADER) -> bytes:
    file = io.BytesIO()
    writer = DumpWriter(file, header)
    for node in nodes:
        writer.add(*node)
    writer.end(point_in_time=True)
    return file.getvalue()


def again(lines: list[bytes]) -> bytes:
    """With a checksum that fits, as one who doctors a file would write it."""
    last = json.loads(lines[-1]) | {"nodes": len(lines) - 2, "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    return b"".join(lines[:-1]) + json.dumps(last).encode() + b"\n"


def refused(dump: bytes) -> str:
    with pytest.raises(UserError) as refusal:
        check_dump(io.BytesIO(dump), "f")
    return str(refusal.value)


def test_a_dump_gives_every_byte_again() -> None:
    dump = written()
    assert list(read_dump(io.BytesIO(dump), "f")) == NODES
    checked = check_dump(io.BytesIO(dump), "f")
    assert (checked.header, checked.contents.nodes, checked.cluster_id) == (HEADER, len(NODES), "abc")
    assert b'"json":{"version":3,"partitions":{"0":[1]}}' in dump


@given(st.lists(st.binary(max_size=30), max_size=5), st.text(max_size=20))
def test_any_data_comes_back(many: list[bytes], text: str) -> None:
    nodes = [DumpedNode("/config", text.encode("utf-8", "surrogatepass"))]
    nodes += [DumpedNode(f"/config/{place}", data) for place, data in enumerate(many)]
    assert list(read_dump(io.BytesIO(written(nodes)), "f")) == nodes


def test_what_is_left_out_is_counted() -> None:
    file = io.BytesIO()
    writer = DumpWriter(file, HEADER._replace(secrets=False))
    writer.add("/brokers", b"")
    writer.add("/brokers/ids", b"")
    writer.add("/brokers/ids/1", b"{}", is_ephemeral=True)
    writer.add("/config", b"")
    writer.add("/config/changes", b"")
    writer.add("/config/changes/config_change_0000000001", b"{}")
    writer.add("/config/users", b"")
    writer.add("/config/users/alice", b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}')
    writer.end(point_in_time=False)
    file.seek(0)
    checked = check_dump(file, "f")
    left_out = checked.left_out
    assert (left_out.ephemerals, left_out.notifications, left_out.secrets) == (1, 1, 1)
    assert (checked.contents.nodes, checked.point_in_time) == (6, False)
    assert b"SCRAM" not in file.getvalue()


def test_a_file_torn_at_any_byte_is_refused() -> None:
    dump = written()
    for end in range(len(dump)):
        refused(dump[:end])
    assert "something follows" in refused(dump + b"x")


def test_a_file_with_a_changed_byte_is_refused() -> None:
    dump = written()
    last = dump.rindex(b"\n", 0, -1)
    for place in range(0, last, 3):
        changed = bytearray(dump)
        changed[place] ^= 0x01
        refused(bytes(changed))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"path":"/cluster/id","text":"x"}', "comes after"),
        (b'{"path":"/config/a","text":"x"}', "comes without /config"),
        (b'{"path":"/zookeeper","text":"x"}', "no node that a dump holds"),
        (b'{"path":"/controller","text":"x"}', "no node that a dump holds"),
        (b'{"path":"/config/../x","text":"x"}', "no . or .. component"),
        (b'{"path":"/config\\ud800","text":"x"}', "line 9"),
        (b'{"path":7,"text":"x"}', "path is no text"),
        (b'{"path":"/config"}', "needs one of"),
        (b'{"path":"/config","text":"x","json":{}}', "needs one of"),
        (b'{"path":"/config","base64":"!"}', "cannot be read"),
        (b'{"path":"/config","json":[]}', "cannot be read"),
        (b'{"path":"/config","text":"x","version":1}', "only /brokers/seqid may"),
        (b'{"path":"/config","text":"x","version":99999999}', "not a number up to"),
        (b"[" * 100_000, "not a JSON object"),
    ],
)
def test_a_doctored_line_is_refused_whatever_the_checksum_says(line: bytes, problem: str) -> None:
    lines = written().splitlines(keepends=True)
    lines.insert(-1, line + b"\n")
    assert problem in refused(again(lines))


def test_nodes_that_were_taken_out_are_missed() -> None:
    lines = written().splitlines(keepends=True)
    del lines[4]
    assert "nodes were written" in refused(b"".join(lines))


def test_other_files_and_later_versions_are_refused() -> None:
    for other in (b"", b"PK\x03\x04", b"{}\n", b'{"bootstrap":1}\n', b"\xff" * 100):
        assert "is no dump of a cluster" in refused(other)
    with pytest.raises(NewerFormatError, match=r"format 2 was written by braidlog 7\.0"):
        check_dump(io.BytesIO(b'{"braidlog_cluster_dump":2,"braidlog":"7.0"}\n'), "f")
