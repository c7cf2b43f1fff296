from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from braidlog.cli.pipelines.pipeline_project import command_of
from braidlog.cli.program import main
from braidlog.core.errors import UserError
from braidlog.testing import Broker


def test_paths_that_cannot_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", str(tmp_path / "missing.py")]) == 1
    assert "does not exist; give a Python file" in capsys.readouterr().err
    assert main(["pipeline", "run", str(tmp_path)]) == 1
    assert "has no spark-pipeline.yml" in capsys.readouterr().err


def test_without_spark_it_says_how_to_get_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("")
    program = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyspark' else find(name, *rest)\n"
        f"from braidlog.cli.program import main; raise SystemExit(main(['pipeline', 'run', {str(file)!r}]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "braidlog: Spark is not installed: pip install 'braidlog[spark]'\n")


def options(**given: Any) -> Namespace:
    return Namespace(**{"master": None, "remote": None, "conf": [], "java": None, **given})


def test_a_project_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    spec = tmp_path / "spark-pipeline.yml"
    (tmp_path / "conf").mkdir()
    words, environment = command_of(spec, options(master="local[2]", conf=["spark.a=b"]))
    assert words[0].endswith("/bin/spark-pipelines")
    assert words[1:] == ["run", "--spec", str(spec), "--remote", "local[2]", "--conf", "spark.a=b"]
    assert environment["SPARK_CONF_DIR"] == str(tmp_path / "conf")
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    with pytest.raises(UserError, match=r"start-connect-server.sh --master spark://h:7077.*--remote sc://"):
        command_of(spec, options(master="spark://h:7077"))
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert command_of(spec, options())[1]["SPARK_CONF_DIR"] == "/etc/spark"


def test_a_missing_topic_is_told_before_spark_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "clean.py"
    with Broker() as broker:
        file.write_text(
            f'BROKER = {{"kafka.bootstrap.servers": "{broker.bootstrap_servers}"}}\n'
            "def pipeline(spark):\n"
            '    return spark.readStream.format("braidlog").options(**BROKER, subscribe="nope").load().writeStream\n'
        )
        # There is no Java that Spark could be started with.
        assert main(["pipeline", "run", str(file), "--java", str(tmp_path / "nowhere")]) == 1
    assert f"{file}, line 3: topic nope does not exist" in capsys.readouterr().err
