"""What `braidlog pipeline` does without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.cli.program import main

OFFSETS = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"@ids": {"orders": "x"}, "orders": {"0": 20, "1": 7}}'
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    place = tmp_path / "state" / "clean"
    for log, text in (("offsets", OFFSETS), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
        (place / log).mkdir(parents=True)
        (place / log / "4").write_text(text)
        os.utime(place / log / "4", (1000.0, 1000.0))
    (place / "metadata").write_text('{"id":"59f0"}')
    return place


# status and lag


def test_looking_at_checkpoints_needs_neither_spark_nor_arrow(checkpoint: Path) -> None:
    program = (
        "import sys; from braidlog.cli.program import main\n"
        f"main(['pipeline', 'status', {str(checkpoint)!r}])\n"
        "import braidlog.cli.pipelines.pipeline_replay\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("[]\n")


# replay


@pytest.mark.parametrize("words", [[], ["--to-earliest", "--to-latest"], ["--to-offset", "-1"]])
def test_where_to_is_said_once(checkpoint: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["pipeline", "replay", str(checkpoint), *words])
    assert exit_.value.code == 2
