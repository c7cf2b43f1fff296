"""Apache Kafka's own dump tool reads the files of a log and finds nothing to object to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.peers.kafka import run_tool

from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.log_kit import Kit, batch

pytestmark = pytest.mark.peer


def write_something_of_everything(kit: Kit) -> UnifiedLog:
    log = kit.open()
    for number in range(40):
        kit.append(
            log,
            batch(
                b"%0200d" % number,
                b"second",
                timestamp=kit.clock.wall_ms(),
                producer_id=7,
                epoch=1,
                sequence=2 * number,
            ),
            leader_epoch=number // 15,
        )
        kit.clock.advance(0.5)
    for codec in range(5):
        records = [Record(timestamp=kit.clock.wall_ms() + i, key=b"k", value=b"v" * 50) for i in range(20)]
        kit.append(log, build_batch(records, codec=codec), leader_epoch=3)
    for producer_id in (100, 101):
        kit.append(
            log,
            batch(
                b"t", timestamp=kit.clock.wall_ms(), producer_id=producer_id, epoch=0, sequence=0, transactional=True
            ),
            leader_epoch=3,
        )
    kit.marker(log, 100, 0, commit=False, coordinator_epoch=5)
    kit.values(log, b"late", timestamp=kit.clock.wall_ms() - 10_000, leader_epoch=3)
    return log


@pytest.mark.parametrize("crash", [False, True])
def test_kafka_dumps_our_files_without_a_complaint(apache_kafka: object, tmp_path: Path, crash: bool) -> None:
    kit = Kit(tmp_path, segment_bytes=6000, index_interval_bytes=1000)
    log = write_something_of_everything(kit)
    if crash:
        log.close(flush=False)
        log = kit.open()
    bases = [segment.base_offset for segment in log.segments]
    end = log.log_end_offset
    log.close()
    assert len(bases) > 2

    names = [name for name in kit.names() if name.endswith((".log", ".index", ".timeindex", ".snapshot", ".txnindex"))]
    done = run_tool(
        "kafka-dump-log",
        ["--deep-iteration", "--print-data-log", "--files", ",".join(f"{kit.directory}/{name}" for name in names)],
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    for complaint in ("ismatch", "Found", "isvalid: false", "Could not", "xception", "orrupt"):
        assert complaint not in output, output
    for base in bases:
        assert f"Log starting offset: {base}\n" in output
    for offset in range(end):
        assert f"offset: {offset} " in output
    assert "producerId: 100 producerEpoch: 0 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong.empty" in output
    assert "producerId: 101 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[181]" in output
    assert "version: 0 producerId: 100 firstOffset: 180 lastOffset: 182 lastStableOffset: 181" in output
    assert "endTxnMarker: ABORT coordinatorEpoch: 5" in output
    indexes = [f"{kit.directory}/{name}" for name in names if name.endswith((".index", ".timeindex"))]
    done = run_tool("kafka-dump-log", ["--index-sanity-check", "--files", ",".join(indexes)])
    assert done.stdout.count("passed sanity check") == len(indexes), done.stdout + done.stderr
