from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from braidlog._pure import SourceOnlyFinder


def test_a_module_is_found_in_its_source_though_a_compiled_one_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    (tmp_path / f"module{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    spec = SourceOnlyFinder().find_spec("braidlog.module", [str(tmp_path)])
    assert spec is not None
    assert spec.origin == str(tmp_path / "module.py")


def test_other_packages_and_missing_modules_are_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    finder = SourceOnlyFinder()
    assert finder.find_spec("other.module", [str(tmp_path)]) is None
    assert finder.find_spec("braidlog", None) is None
    assert finder.find_spec("braidlog.gone", [str(tmp_path)]) is None
