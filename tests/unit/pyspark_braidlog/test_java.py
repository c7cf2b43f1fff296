"""Finding a Java, refusing one that is too old, and keeping one word from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.java import VECTOR_MODULE, Java, find_java, home_for_spark, java_at, major_version

NOWHERE = {"PATH": "/nonexistent"}


def none_packaged() -> Path | None:
    return None


def java_home(place: Path, version: str | None, script: str = 'for word; do printf "%s\\n" "$word"; done') -> Path:
    """A home whose java prints its words, or does what `script` says."""
    (place / "bin").mkdir(parents=True)
    (place / "lib").mkdir()
    java = place / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    (place / "bin" / "keytool").write_text("#!/bin/sh\n")
    if version is not None:
        (place / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return place


@pytest.mark.parametrize(
    ("text", "version"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("26-ea", 26), (" 21.0.8\n", 21), ("none", None)],
)
def test_major_versions(text: str, version: int | None) -> None:
    assert major_version(text) == version


def test_the_release_file_tells_the_version(tmp_path: Path) -> None:
    assert java_at(java_home(tmp_path / "j", "21.0.8", script="exit 1")) == Java(tmp_path / "j", 21)


def test_without_a_release_file_java_is_asked(tmp_path: Path) -> None:
    script = f'printf "    java.home = {tmp_path}/real\\n    java.version = 17.0.2\\n" >&2'
    assert java_at(java_home(tmp_path / "door", None, script)) == Java(tmp_path / "real", 17)


def test_a_program_that_is_no_java(tmp_path: Path) -> None:
    assert java_at(java_home(tmp_path / "j", None, "echo 'please install java' >&2; exit 1")) is None
    assert java_at(tmp_path / "missing") is None


def test_java_home_comes_before_the_path_and_the_path_before_the_package(tmp_path: Path) -> None:
    homes = {name: java_home(tmp_path / name, "17.0.1") for name in ("set", "path", "packaged")}
    path = {"PATH": str(homes["path"] / "bin")}
    both = {**path, "JAVA_HOME": str(homes["set"])}
    assert find_java(None, both, lambda: homes["packaged"]).home == homes["set"]
    assert find_java(None, path, lambda: homes["packaged"]).home == homes["path"]
    assert find_java(None, NOWHERE, lambda: homes["packaged"]).home == homes["packaged"]


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "11.0.2")
    young = java_home(tmp_path / "young", "17.0.2")
    assert find_java(None, {**NOWHERE, "JAVA_HOME": str(old)}, lambda: young).home == young


def test_only_an_old_one(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "1.8.0_402")
    with pytest.raises(UserError, match=r"needs Java 17 or newer, and here is only version 8 in .*braidlog\[java\]"):
        find_java(None, {**NOWHERE, "JAVA_HOME": str(old)}, none_packaged)


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none was found: install one \(`apt install openjdk-17.*braidlog\[java\]"):
        find_java(None, NOWHERE, none_packaged)
    with pytest.raises(UserError, match=r"no Java in JAVA_HOME \(/wrong\)"):
        find_java(None, {**NOWHERE, "JAVA_HOME": "/wrong"}, none_packaged)


def test_a_given_one_is_taken_or_refused(tmp_path: Path) -> None:
    other = {**NOWHERE, "JAVA_HOME": str(java_home(tmp_path / "other", "17.0.2"))}
    given = java_home(tmp_path / "given", "25.0.2")
    assert find_java(given, other) == Java(given, 25)
    with pytest.raises(UserError, match=r"no Java in .*missing: bin/java is missing"):
        find_java(tmp_path / "missing", other)
    old = java_home(tmp_path / "old", "11")
    with pytest.raises(UserError, match="version 11, and Spark needs 17"):
        find_java(old, other)


def test_the_home_for_spark_drops_the_module_and_nothing_else(tmp_path: Path) -> None:
    java = Java(java_home(tmp_path / "it's java", "21.0.8"), 21)
    home = home_for_spark(java, tmp_path / "cache")
    words = ["-Xmx1g", VECTOR_MODULE, "", "a b", "$HOME", "'", "*", "--add-modules=java.sql", VECTOR_MODULE]
    printed = subprocess.run([str(home / "bin" / "java"), *words], capture_output=True, text=True, check=True).stdout
    assert printed.split("\n")[:-1] == [word for word in words if word != VECTOR_MODULE]
    assert (home / "lib").resolve() == java.home / "lib"
    assert (home / "bin" / "keytool").resolve() == java.home / "bin" / "keytool"
    # It is found again as what it stands for, and used again.
    assert java_at(home) == Java(home, 21)
    made = os.stat(home / "bin" / "java").st_ino
    assert home_for_spark(java, tmp_path / "cache") == home
    assert os.stat(home / "bin" / "java").st_ino == made


def test_a_broken_home_is_built_again(tmp_path: Path) -> None:
    java = Java(java_home(tmp_path / "j", "21.0.8"), 21)
    home = home_for_spark(java, tmp_path / "cache")
    (home / "bin" / "java").unlink()
    assert home_for_spark(java, tmp_path / "cache") == home
    assert (home / "bin" / "java").is_file()
