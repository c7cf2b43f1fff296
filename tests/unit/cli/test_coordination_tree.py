from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from braidlog.cli.coordination_tree import add_dump, add_restore
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.recovery import replace_by
from braidlog.cluster.store import Create
from braidlog.cluster.tree import ZnodeTree
from braidlog.core.errors import UserError


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers()
    add_dump(verbs.add_parser("dump"))
    add_restore(verbs.add_parser("restore"))
    options = parser.parse_args(words)
    return int(options.run(options))


def test_a_dump_and_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = ZnodeTree()
    tree.transact([Create("/cluster"), Create("/cluster/id", b'{"version":"1","id":"abc"}')], 1, 0, 0)
    files = OsJournalFiles(str(tmp_path / "data"))
    replace_by(files, tree)
    files.close()
    dump, data = str(tmp_path / "dump"), str(tmp_path / "data")
    assert run("dump", dump, "--data", data, "--output", "json") == 0
    assert run("restore", dump, "--check", "--output", "json") == 0
    made, checked = map(json.loads, capsys.readouterr().out.splitlines())
    assert (made["nodes"], checked["nodes"], checked["cluster_id"]) == (2, 2, "abc")
    with pytest.raises(UserError, match="say where to"):
        run("restore", dump)
    (tmp_path / "data" / "meta.properties").write_text("version=0\ncluster.id=other\n")
    with pytest.raises(UserError, match="belongs to cluster other"):
        run("restore", dump, "--data", data, "--replace")
