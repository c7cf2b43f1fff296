from __future__ import annotations

import pytest

from braidlog.core import compilation, slices


@pytest.mark.parametrize(("file", "compiled"), [("slices.py", False), ("slices.cpython-311-x86_64-linux-gnu.so", True)])
def test_one_module_stands_for_all(monkeypatch: pytest.MonkeyPatch, file: str, compiled: bool) -> None:
    monkeypatch.setattr(slices, "__file__", f"/site-packages/braidlog/core/{file}")
    assert compilation.is_compiled() is compiled
    assert (compilation.uncompiled_notice() is None) is compiled


def test_the_notice_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "__file__", "slices.py")
    monkeypatch.setenv("BRAIDLOG_PURE", "1")
    assert "BRAIDLOG_PURE=1 is set" in (compilation.uncompiled_notice() or "")
    monkeypatch.delenv("BRAIDLOG_PURE")
    assert "install a C compiler" in (compilation.uncompiled_notice() or "")
