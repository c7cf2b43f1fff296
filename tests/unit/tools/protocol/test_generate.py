"""The committed modules are what the generator writes, and the notation says where it was not understood."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.protocol.emit import condition
from tools.protocol.generate import TARGET, generated_files, schemas
from tools.protocol.model import Versions
from tools.protocol.notation import NotationError, read_schema


def test_committed_modules_are_up_to_date() -> None:
    wanted = generated_files()
    present = {path.name for path in TARGET.glob("*.py")} - {"__init__.py"}
    assert present == set(wanted)
    stale = [name for name, text in wanted.items() if (TARGET / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run `python -m tools.protocol`"


def test_one_file_per_api_and_no_key_twice() -> None:
    apis = [schema.api for schema in schemas() if schema.api is not None]
    assert len({api.key for api in apis}) == len(apis) == 65


def written(path: Path, text: str) -> Path:
    file = path / "sample.txt"
    file.write_text("# A sample.\napi 1 Sample versions 0-5 stable 4 flexible 2+\n\n" + text, encoding="utf-8")
    return file


def test_fields_are_understood(tmp_path: Path) -> None:
    text = (
        "struct Shared 1+\n  inner  int8\n\nrequest\n  a  string?3+  1-4 = null ignorable\n"
        "  b  []Part?\n    c  int32\n  d  uuid  2+ tag 7\n\nresponse\n  e  []Shared  1+\n"
    )
    schema = read_schema(written(tmp_path, text))
    a, b, d = schema.structs["SampleRequest"].fields
    assert (a.versions, a.nullable, a.default, a.ignorable) == (Versions(1, 4), Versions(3, 4), "null", True)
    assert (b.array, b.type, b.nullable) == (True, "Part", Versions(0, 5))
    assert (d.tag, d.versions) == (7, Versions(2, 5))
    assert list(schema.structs) == ["Shared", "Part", "SampleRequest", "SampleResponse"]
    assert schema.messages == ["SampleRequest", "SampleResponse"]
    assert schema.smallest("Part") == 4
    # Since version 2 compact: one byte for the array, one for the tags.
    assert schema.smallest("SampleResponse") == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("request\n  a  string nonsense\n", "sample.txt:5: not a field"),
        ("request\n  a  int8\n    b  int8\n", "sample.txt:6: a field of nothing"),
        ("request\n  a  Missing\n", "Missing is neither declared above nor has fields below"),
        ("struct S 1-2\n  a  int8  4+\n", "sample.txt:5: in no version"),
        ("struct S\n  a  int8\n\nstruct S\n  a  int8\n", "sample.txt:7: S is there twice"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(NotationError, match=problem):
        read_schema(written(tmp_path, text))


def test_conditions_test_only_what_varies() -> None:
    every = Versions(0, 9)
    assert condition(every, every) == ""
    assert condition(Versions(0, 12), every) == ""
    assert condition(Versions(3, 9), every) == "version >= 3"
    assert condition(Versions(0, 4), every) == "version <= 4"
    assert condition(Versions(2, 4), every) == "2 <= version <= 4"
    assert condition(Versions(2, 2), every) == "version == 2"
    assert condition(Versions(9, 9), every) == "version >= 9"


def test_a_struct_that_never_changes_does_not_branch() -> None:
    text = generated_files()["produce.py"]
    body = text[text.index("class NodeEndpoint(") : text.index("class ProduceResponse(")]
    assert "if " not in body
    assert "flex" not in body
