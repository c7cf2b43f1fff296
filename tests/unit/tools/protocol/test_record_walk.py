"""The walks over records are what the generator writes."""

from __future__ import annotations

import pytest
from tools.protocol.record_walk import (
    BATCH_READER,
    BEGIN,
    COLUMNS,
    END,
    SCAN,
    WALKS,
    Walk,
    loop_text,
    walked_files,
    with_walk,
)


def test_committed_walks_are_up_to_date() -> None:
    stale = [path.name for path, text in walked_files().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python -m tools.protocol`"


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.path)
def test_a_walk_is_python_and_all_its_directives_are_expanded(walk: Walk) -> None:
    text = loop_text(walk)
    compile(text, walk.path, "exec")
    assert "@" not in text
    assert "<record>" not in text


def test_walks_refuse_cut_records_themselves_or_leave_it_to_the_functions_that_read_numbers() -> None:
    assert loop_text(SCAN).count("is cut short") == loop_text(BATCH_READER).count("is cut short") == 4
    assert "is cut short" not in loop_text(COLUMNS)
    assert loop_text(COLUMNS).count("if record_end - at < 2:") == 2


def test_text_outside_of_the_comments_stays() -> None:
    module = f"def f() -> None:\n    {BEGIN}\n    old\n    {END}\n    return\n"
    written = with_walk(module, SCAN)
    assert written.startswith(f"def f() -> None:\n    {BEGIN}\n    byte: i64\n")
    assert written.endswith(f"    {END}\n    return\n")
    assert with_walk(written, SCAN) == written
    with pytest.raises(ValueError, match=r"scan\.py lacks the comments"):
        with_walk("def f() -> None: ...\n", SCAN)
