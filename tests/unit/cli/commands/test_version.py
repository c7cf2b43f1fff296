from __future__ import annotations

import json

import pytest

from braidlog.cli.program import main
from braidlog.core import slices


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    reported = capsys.readouterr().out
    assert reported.startswith("braidlog  0.")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == reported


def test_version_says_when_it_is_uncompiled_and_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRAIDLOG_PURE", raising=False)
    monkeypatch.setattr(slices, "__file__", "slices.py")
    assert main(["version", "--output", "json"]) == 0
    reported = capsys.readouterr()
    assert json.loads(reported.out)["compiled"] is False
    assert "several times slower; to compile, install a C compiler" in reported.err

    monkeypatch.setenv("BRAIDLOG_PURE", "1")
    main(["version"])
    assert "because BRAIDLOG_PURE=1 is set" in capsys.readouterr().err

    monkeypatch.setattr(slices, "__file__", "slices.so")
    main(["version", "--output", "json"])
    reported = capsys.readouterr()
    assert json.loads(reported.out)["compiled"] is True
    assert reported.err == ""
