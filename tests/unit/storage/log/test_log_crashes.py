"""A process that dies at a named point: what it said was written is there, once and in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.log_kit import Kit, batch, read_all

PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from support.log_kit import Kit, batch
kit = Kit(Path(sys.argv[1]), segment_bytes=400)
log = kit.open()
for number in range(40):
    data = batch(b"%d" % number, timestamp=kit.clock.wall_ms(), producer_id=1, epoch=0, sequence=number)
    kit.stage(log, data, leader_epoch=number // 7)
    if number % 3 == 2:
        log.write_staged()
        print(log.log_end_offset, flush=True)
    if number % 10 == 9:
        log.sync_to(log.log_end_offset)
log.close()
"""


@pytest.mark.parametrize(
    "point", ["after-write:1", "after-write:8", "mid-roll:1", "mid-roll:4", "mid-checkpoint:1", "mid-checkpoint:5"]
)
def test_nothing_that_was_written_is_lost_or_doubled(tmp_path: Path, point: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(Path(__file__).parent), *sys.path],
        env={**os.environ, "BRAIDLOG_CRASH_AT": point},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    acknowledged = int((done.stdout.split() or ["0"])[-1])
    kit = Kit(tmp_path, segment_bytes=400)
    log = kit.open()
    content = read_all(log)
    assert content == [(number, b"%d" % number) for number in range(len(content))]
    assert len(content) == log.log_end_offset >= acknowledged
    assert log.recovery.lost == []
    # The producer goes on where it was answered last; what it sends again is recognised.
    for number in range(acknowledged, 40):
        info = kit.append(log, batch(b"%d" % number, producer_id=1, epoch=0, sequence=number), leader_epoch=6)
        assert (info.first_offset, info.duplicate) == (number, number < len(content))
    assert read_all(log) == [(number, b"%d" % number) for number in range(40)]
