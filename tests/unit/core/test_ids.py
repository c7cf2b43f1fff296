from __future__ import annotations

import uuid

import pytest

from braidlog.core.ids import ZERO_ID, id_text, parse_id, random_id


def test_text_and_bytes_are_two_forms_of_one_id() -> None:
    for _ in range(100):
        identifier = random_id()
        assert parse_id(id_text(identifier)) == identifier
        assert len(id_text(identifier)) == 22
        assert not id_text(identifier).startswith("-")


def test_random_ids_are_version_4_uuids_and_differ() -> None:
    ids = [random_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert {uuid.UUID(bytes=identifier).version for identifier in ids} == {4}


def test_kafkas_text_of_the_zero_id() -> None:
    assert id_text(ZERO_ID) == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize("text", ["", "abc", "AAAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA*", "é" * 22])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        parse_id(text)
