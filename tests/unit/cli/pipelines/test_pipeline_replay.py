from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from braidlog.cli.pipelines import pipeline_replay
from braidlog.cli.program import main
from braidlog.cli.topic_selection import TopicSelection
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.testing import Broker
from pyspark_braidlog.jobs.checkpoint import read_checkpoint
from pyspark_braidlog.jobs.run_lock import RunLock


def test_a_replay_is_refused_while_somebody_is_at_it(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = RunLock(checkpoint)
    assert lock.take()
    assert main(["pipeline", "replay", str(checkpoint), "--to-earliest", "--execute", "--force"]) == 1
    lock.release()
    assert "the query is running (process " in capsys.readouterr().err
    # Something wrote to the checkpoint after the run had let go of it.
    soon = time.time() + 5.0
    os.utime(checkpoint / "offsets" / "4", (soon, soon))
    assert main(["pipeline", "replay", str(checkpoint), "--to-earliest", "--execute"]) == 1
    assert "may be running: stop it first; if it is stopped, say --force" in capsys.readouterr().err


def test_a_replay_after_a_run_that_was_stopped_needs_no_force(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        words = ["--to-earliest", "--execute", "--bootstrap", broker.bootstrap_servers]
        lock = RunLock(checkpoint)
        assert lock.take()
        os.utime(checkpoint / "offsets" / "4")
        lock.release()
        assert main(["pipeline", "replay", str(checkpoint), *words]) == 0, capsys.readouterr().err
        # Nor does one after another; copies of old checkpoints are told apart by the second.
        for backup in checkpoint.parent.glob("clean.before-replay-*"):
            shutil.rmtree(backup)
        assert main(["pipeline", "replay", str(checkpoint), *words]) == 0, capsys.readouterr().err


def test_a_replay_after_a_run_that_was_killed_needs_force(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import os, sys, pathlib; from pyspark_braidlog.jobs.run_lock import RunLock\n"
        f"place = pathlib.Path({str(checkpoint)!r}); RunLock(place).take()\n"
        "os.utime(place / '.braidlog-run.lock', (2, 2))\n"
        "os.utime(place / 'offsets' / '4'); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert main(["pipeline", "replay", str(checkpoint), "--to-earliest", "--execute"]) == 1
    assert "say --force" in capsys.readouterr().err


def test_partitions_of_a_replay(checkpoint: Path) -> None:
    found = read_checkpoint(checkpoint)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert pipeline_replay.chosen(found, []) == {first: 20, second: 7}
    assert pipeline_replay.chosen(found, [TopicSelection("orders", (1,))]) == {second: 7}
    with pytest.raises(UserError, match="does not read topic users; it reads orders"):
        pipeline_replay.chosen(found, [TopicSelection("users")])
    with pytest.raises(UserError, match="does not read partition 9 of topic orders"):
        pipeline_replay.chosen(found, [TopicSelection("orders", (0, 9))])
