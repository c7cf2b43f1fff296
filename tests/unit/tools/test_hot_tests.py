from __future__ import annotations

from tools import hot_tests
from tools.hot import UNITS

COMPILED = {path for unit in UNITS.values() for path in unit}


def test_every_compiled_module_has_tests_among_them() -> None:
    folders = set(hot_tests.folders())
    for path in COMPILED:
        package = path.removeprefix("src/braidlog/").rpartition("/")[0].replace("wire/generated", "wire")
        assert hot_tests.UNIT / package in folders, path


def test_a_folder_without_a_compiled_module_is_left_out() -> None:
    assert hot_tests.UNIT / "controller" not in hot_tests.folders()


def test_the_files_exist_and_are_tests() -> None:
    names = [path.name for path in hot_tests.files()]
    assert "test_unified_log.py" in names
    assert all(name.startswith("test_") for name in names)


def test_every_test_file_of_a_compiled_module_is_among_them() -> None:
    tests = {
        hot_tests.UNIT / package / f"test_{name}"
        for package, _, name in (path.removeprefix("src/braidlog/").rpartition("/") for path in COMPILED)
    }
    assert {path for path in tests if path.exists()} <= set(hot_tests.files())


def test_tests_of_several_modules_stay_and_those_of_an_interpreted_one_go() -> None:
    log = hot_tests.UNIT / "storage" / "log"
    assert log / "test_power_cut.py" in hot_tests.files()
    assert (log / "test_log_loader.py" in hot_tests.files()) == ("src/braidlog/storage/log/log_loader.py" in COMPILED)
    assert hot_tests.UNIT / "test_tree.py" not in hot_tests.files()
