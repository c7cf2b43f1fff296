from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.local_cluster.workers_directory import WorkersDirectory, partitions_in, refuse_workers_data


def opened(path: Path, workers: int, *more: Path, own_store: bool = True, resize: bool = False) -> list[int | None]:
    said: list[str] = []
    directory = WorkersDirectory(
        [str(each) for each in (path, *more)], workers, own_store=own_store, resize=resize, say=said.append
    )
    directory.close()
    assert said == []
    return directory.broker_ids


def test_a_new_directory_is_laid_out_and_remembered(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert opened(data, 2) == [None, None]
    assert stat.S_IMODE((data / "store").stat().st_mode) == 0o700
    assert json.loads((data / "workers.json").read_text()) == {
        "version": 1, "workers": 2, "store": "embedded", "broker_ids": [None, None],
    }  # fmt: skip


def test_broker_ids_stay(tmp_path: Path) -> None:
    directory = WorkersDirectory([str(tmp_path)], 2, own_store=False, resize=False, say=print)
    directory.record_broker_id(1, 1002)
    directory.record_broker_id(0, 1001)
    directory.close()
    assert opened(tmp_path, 2, own_store=False) == [1001, 1002]
    assert opened(tmp_path, 3, own_store=False, resize=True) == [1001, 1002, None]
    assert opened(tmp_path, 1, own_store=False, resize=True) == [1001]


def test_every_data_directory_has_one_for_each_worker(tmp_path: Path) -> None:
    directory = WorkersDirectory([str(tmp_path / "a"), str(tmp_path / "b")], 2, own_store=True, resize=False, say=print)
    directory.close()
    assert directory.data_paths(1) == [tmp_path / "a" / "worker-1", tmp_path / "b" / "worker-1"]
    assert directory.socket_path == tmp_path / "a" / "store" / "store.sock"


def test_one_at_a_time(tmp_path: Path) -> None:
    first = WorkersDirectory([str(tmp_path)], 1, own_store=True, resize=False, say=print)
    try:
        with pytest.raises(UserError, match="in use by another `braidlog serve --workers`, pid"):
            opened(tmp_path, 1)
    finally:
        first.close()
    opened(tmp_path, 1)


def test_the_data_of_a_single_broker_is_refused_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").touch()
    with pytest.raises(UserError, match=r"b holds the data of a single broker.* without --workers"):
        opened(tmp_path / "a", 2, tmp_path / "b")
    assert not (tmp_path / "a").exists()


def test_more_workers_are_meant(tmp_path: Path) -> None:
    opened(tmp_path, 1)
    with pytest.raises(UserError, match="has 1 worker, not 3: say --workers 1, or add --resize"):
        opened(tmp_path, 3)
    assert len(opened(tmp_path, 3, resize=True)) == 3
    assert len(opened(tmp_path, 3)) == 3


def test_fewer_workers_lose_no_partition(tmp_path: Path) -> None:
    opened(tmp_path, 3)
    held = tmp_path / "worker-2" / "orders-7"
    held.mkdir(parents=True)
    (tmp_path / "worker-1").mkdir()
    with pytest.raises(UserError, match=r"only worker-1, worker-2 have would be offline: say --workers 3\. To have"):
        opened(tmp_path, 1)
    with pytest.raises(UserError, match=r"worker-2 still has 1 partition, such as orders-7: start with --workers 3"):
        opened(tmp_path, 1, resize=True)
    held.rename(held.with_name("orders-7.1f2e-delete"))
    assert len(opened(tmp_path, 1, resize=True)) == 1


@pytest.mark.parametrize(("before", "said"), [(True, "leave out zookeeper"), (False, "set zookeeper.connect as")])
def test_another_kind_of_store_is_refused(tmp_path: Path, before: bool, said: str) -> None:
    opened(tmp_path, 1, own_store=before)
    with pytest.raises(UserError, match=said):
        opened(tmp_path, 1, own_store=not before)


def test_directories_of_workers_without_their_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b" / "worker-0").mkdir(parents=True)
    with pytest.raises(UserError, match=r"a/workers\.json is missing: restore that file"):
        opened(tmp_path / "a", 1, tmp_path / "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "cannot be read: restore"), ("[]", "cannot be read"), ('{"version": 2}', "newer braidlog")],
)
def test_a_file_that_is_not_understood(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "workers.json").write_text(text)
    with pytest.raises(UserError, match=said):
        opened(tmp_path, 1)


def test_a_single_broker_does_not_start_there(tmp_path: Path) -> None:
    refuse_workers_data([str(tmp_path), str(tmp_path / "none")])
    opened(tmp_path, 4)
    with pytest.raises(UserError, match=r"holds the data of 4 workers, .* say --workers 4"):
        refuse_workers_data([str(tmp_path)])


def test_partitions_in_a_directory(tmp_path: Path) -> None:
    for name in ("a-0", "b-c-12", "a-1.0f-delete", "a-2.0f-stray", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").touch()
    assert partitions_in(tmp_path) == ["a-0", "b-c-12"]
    assert partitions_in(tmp_path / "none") == []
