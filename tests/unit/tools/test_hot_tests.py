"""Which unit tests are worth a second run, with nothing compiled."""

from __future__ import annotations

from tools import hot_tests
from tools.hot_tests import NATIVE, SOURCE, UNIT


def test_the_files_exist_and_are_tests() -> None:
    assert all(path.name.startswith("test_") and path.exists() for path in hot_tests.files())


def test_what_calculates_with_native_integers_is_found() -> None:
    assert SOURCE / "wire/records/key_hash.py" in NATIVE
    assert SOURCE / "wire/reader.py" in NATIVE
    # Compiled, but with none of them; and not compiled at all.
    assert SOURCE / "broker/requests/dispatch.py" not in NATIVE
    assert SOURCE / "controller/controller.py" not in NATIVE


def test_every_test_file_of_such_a_module_is_among_them() -> None:
    tests = {UNIT / path.relative_to(SOURCE).with_name(f"test_{path.name}") for path in NATIVE}
    assert {path for path in tests if path.exists()} <= set(hot_tests.files())
    assert UNIT / "wire/records/test_key_hash.py" in hot_tests.files()
    assert UNIT / "broker/requests/test_dispatch.py" not in hot_tests.files()


def test_tests_of_several_modules_stay_if_such_a_one_is_among_these() -> None:
    assert UNIT / "wire/records/test_golden.py" in hot_tests.files()
    assert UNIT / "storage/log/test_power_cut.py" not in hot_tests.files()
