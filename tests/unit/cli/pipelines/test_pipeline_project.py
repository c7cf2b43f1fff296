from __future__ import annotations

import json
from pathlib import Path

import pytest

from braidlog.cli.pipelines.pipeline_project import reason
from braidlog.cli.program import main


def test_a_project_names_itself_and_its_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIDLOG_BOOTSTRAP", "kafka:9092")
    home = tmp_path / "my shop"
    words = ["--topic", "web.Orders", "--output", "json"]
    assert main(["pipeline", "init", str(home), *words]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["directory"] == str(home)
    assert set(reported["files"]) == {
        str(each.relative_to(home)) for each in home.rglob("*") if each.is_file() and "__pycache__" not in each.parts
    }
    everything = {name: (home / name).read_text() for name in reported["files"]}
    assert not any("@" in text.replace("@dp.", "") for text in everything.values())
    source = everything["transformations/orders.py"]
    compile(source, "orders.py", "exec")
    assert '"kafka:9092"' in source
    assert "def web_orders()" in source
    assert '"subscribe", "web.Orders"' in source
    assert f"storage: {home.as_uri()}/state/checkpoints" in everything["spark-pipeline.yml"]
    assert "name: my-shop" in everything["spark-pipeline.yml"]
    assert "%20" in everything["conf/spark-defaults.conf"]


def test_why_a_project_failed() -> None:
    output = (
        "2026-11-16 09:06:44: Starting run...\n"
        "2026-11-16 09:06:45: Failed to resolve flow: 'spark_catalog.default.counted'.\n"
        'Error: [CANNOT_RESOLVE_DATAFRAME_COLUMN] Cannot resolve dataframe column "value". SQLSTATE: 42704\n'
        "Traceback (most recent call last):\n"
        '  File "cli.py", line 450, in <module>\n'
        "pyspark.errors.exceptions.connect.AnalysisException: \nFailed to resolve flows in the pipeline.\n"
    )
    assert reason(output) == 'flow spark_catalog.default.counted: Cannot resolve dataframe column "value".'
    assert "did not say why" in reason("")
