"""What the interface itself does; `support.store_contract` has what every store behind it promises."""

from __future__ import annotations

import pytest

from braidlog.cluster.store import (
    BadVersionError,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StoreError,
    check_path,
)


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a.b", "/a/...", "/brokers/topics/ä"])
def test_valid_paths(path: str) -> None:
    check_path(path)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a\0b", "/a\nb"])
def test_a_path_that_breaks_the_rules_is_named(path: str) -> None:
    with pytest.raises(InvalidPathError) as refused:
        check_path(path)
    assert path.strip("\0\n") in str(refused.value) or repr(path) in str(refused.value)


@pytest.mark.parametrize(
    "error",
    [
        NoNodeError("/a"),
        NodeExistsError("/a"),
        BadVersionError("/a", 3, 5),
        NotEmptyError("/a"),
        NoChildrenForEphemeralsError("/a"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_refusals_name_the_node(error: StoreError) -> None:
    assert "/a" in str(error)


def test_a_wrong_version_names_both() -> None:
    assert "3" in str(BadVersionError("/a", 3, 5))
    assert "5" in str(BadVersionError("/a", 3, 5))
