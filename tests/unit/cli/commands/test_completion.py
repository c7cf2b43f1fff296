"""Scripts that shells accept, offering what the parser takes."""

from __future__ import annotations

import pytest

from braidlog.cli.program import main


def test_settings_by_what_the_line_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    def offered(what: str, line: str) -> set[str]:
        assert main(["completion", what, "--line", line]) == 0
        return set(capsys.readouterr().out.split())

    assert "linger.ms" in offered("client-settings", "braidlog produce x -X ")
    admin = offered("client-settings", "braidlog topics list -X ")
    assert "linger.ms" not in admin
    assert "sasl.username" in admin
    assert "process.roles" in offered("broker-settings", "braidlog serve --set ")
    # What cannot change at run time is not offered for a change.
    assert "process.roles" not in offered("resource-settings", "braidlog configs alter --broker 1 --set ")
    assert offered("resource-settings", "braidlog configs alter --broker-loggers 1 --set ") == set()


@pytest.mark.parametrize("what", ["topics", "groups", "transactions"])
def test_no_broker_no_names_no_noise(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", what, "--bootstrap", "127.0.0.1:1"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
