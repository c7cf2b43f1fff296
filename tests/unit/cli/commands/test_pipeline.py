"""What `braidlog pipeline` does without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.cli.program import main

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
