"""What `cluster up` refuses; tests/cluster has both commands on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cli.program import main


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_address_that_nobody_can_connect_to_is_refused(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "up", "--data", str(tmp_path / "data"), "--listen", f"{host}:9092"]) == 1
    assert f"--listen {host}: brokers tell clients" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
