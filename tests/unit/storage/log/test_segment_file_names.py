from __future__ import annotations

import pytest

from braidlog.storage.log.segment_file_names import LOG_SUFFIX, SUFFIXES, base_offset_of, file_name


def test_names_have_twenty_digits() -> None:
    assert file_name(1234, LOG_SUFFIX) == "00000000000000001234.log"
    assert file_name(0) == "0" * 20


def test_the_log_is_the_last_of_its_files() -> None:
    assert SUFFIXES[-1] == LOG_SUFFIX


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000001234.log", 1234),
        ("00000000000000001234.log.deleted", 1234),
        ("00000000000000000000.snapshot", 0),
        ("00000000000000001234", None),
        ("1234.log", None),
        ("leader-epoch-checkpoint", None),
        ("lost-00000000000000000003.tail", None),
        ("0000000000000000000٣.log", None),
        ("-0000000000000000001.log", None),
    ],
)
def test_the_offset_of_a_name(name: str, offset: int | None) -> None:
    assert base_offset_of(name) == offset
