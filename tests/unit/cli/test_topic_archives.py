from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from braidlog.cli.topic_archives import add_export, add_import
from braidlog.core.errors import UserError


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers()
    add_export(verbs.add_parser("export"))
    add_import(verbs.add_parser("import"))
    options = parser.parse_args(words)
    return int(options.run(options))


def test_places_without_a_store_or_an_archive_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no coordination store"):
        run("export", "orders", str(tmp_path / "archive"), "--data", str(tmp_path))
    with pytest.raises(UserError, match="is no whole archive"):
        run("import", str(tmp_path), "--data", str(tmp_path))
    assert list(tmp_path.iterdir()) == []
