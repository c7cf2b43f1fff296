from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.storage.archive.copying import checksum, copied, stopped_broker


def test_a_copy_comes_with_its_checksum_and_replaces_nothing(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    assert copied(tmp_path / "a", tmp_path / "b") == (len(content), digest)
    assert (tmp_path / "b").read_bytes() == content
    assert checksum(tmp_path / "b") == digest
    with pytest.raises(FileExistsError):
        copied(tmp_path / "a", tmp_path / "b")


def test_directories_of_one_broker_are_held(data: Path, target: Path, tmp_path: Path) -> None:
    with stopped_broker([str(data), str(target)]) as owner:
        assert (owner.cluster_id, owner.node_id) == ("cluster", 1)
        with pytest.raises(UserError, match="in use by"), stopped_broker([str(target)]):
            pass
    properties = target / "meta.properties"
    properties.write_text(properties.read_text().replace("broker.id=1", "broker.id=2"))
    with (
        pytest.raises(UserError, match="are not the directories of one broker"),
        stopped_broker([str(data), str(target)]),
    ):
        pass
