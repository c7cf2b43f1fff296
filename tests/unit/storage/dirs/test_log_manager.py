from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.errors import UserError
from braidlog.core.ids import parse_id
from braidlog.core.protocol_errors import (
    InconsistentTopicIdError,
    LogDirNotFoundError,
    UnknownTopicOrPartitionError,
)
from braidlog.storage.dirs.log_directory import CLEAN_SHUTDOWN
from braidlog.storage.dirs.offset_checkpoint_file import RECOVERY_POINTS
from support.manager_fixture import TOPIC_ID, Broker, append, content, crashed_without_room, tp

OTHER_ID = parse_id("BBECAwQFBgcICQoLDA0ODw")


def test_a_clean_restart_brings_everything_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "d").start()
    log = broker.manager.create(tp("orders"), topic_id=TOPIC_ID)
    append(log, ("k", "v"), ("k", "w"))
    broker.manager.close(broker_epoch=5)
    assert (tmp_path / "d" / CLEAN_SHUTDOWN).read_text() == '{"version":0,"brokerEpoch":5}'

    again = Broker(tmp_path / "d")
    again.manager.open()
    assert again.manager.stored_cluster_id() == "cluster"
    assert again.manager.stored_node_id() == 1
    again.manager.claim("cluster", 1)
    report = again.manager.load()
    assert (report.logs, report.clean, report.recovered_bytes) == (1, True, 0)
    assert again.manager.directories[0].previous_broker_epoch == 5
    log = again.manager.log(tp("orders"))
    assert content(log) == [(0, b"v"), (1, b"w")]
    assert log.high_watermark == 2
    assert again.manager.topic_id(tp("orders")) == TOPIC_ID
    assert not (tmp_path / "d" / CLEAN_SHUTDOWN).exists()
    again.manager.close()


def test_new_partitions_go_where_fewest_are(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    manager = broker.manager
    manager.create(tp("x", 0), directory=str(tmp_path / "a"))
    manager.create(tp("x", 1), directory=str(tmp_path / "a"))
    for number in range(2, 6):
        manager.create(tp("x", number))
    assert [directory.partition_count for directory in manager.directories] == [3, 3]
    manager.prefer_directory(tp("y"), str(tmp_path / "b") + "/")
    manager.create(tp("y"))
    assert (tmp_path / "b" / "y-0").is_dir()
    with pytest.raises(LogDirNotFoundError):
        manager.create(tp("z"), directory="/elsewhere")
    manager.close()


def test_creating_twice_gives_the_same_log(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    assert manager.create(tp("x")) is manager.create(tp("x"))
    assert len(manager) == 1
    manager.close()


def test_a_log_of_an_earlier_topic_is_refused(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    manager.create(tp("x"), topic_id=TOPIC_ID)
    with pytest.raises(InconsistentTopicIdError):
        manager.create(tp("x"), topic_id=OTHER_ID)
    manager.mark_stray(tp("x"))
    assert len(list(tmp_path.glob("x-0.*-stray"))) == 1
    manager.create(tp("x"), topic_id=OTHER_ID)
    manager.close()
    report = Broker(tmp_path)
    report.manager.open()
    assert len(report.manager.load().strays) == 1
    report.manager.close()


def test_an_unknown_partition_is_not_an_offline_one(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.log(tp("x"))
    assert manager.get(tp("x")) is None
    manager.close()


def test_logs_are_created_and_opened_with_the_settings_of_their_topic(tmp_path: Path) -> None:
    settings = LogSettings(segment_bytes=12345)
    for _ in range(2):
        broker = Broker(tmp_path)
        broker.topic_settings["x"] = settings
        manager = broker.start().manager
        logs = [manager.create(tp("x", number)) for number in range(3)]
        assert [log.settings for log in logs] == [settings] * 3
        assert manager.create(tp("y")).settings == LogSettings()
        manager.close()


def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    first = Broker(tmp_path / "a").start()
    second = Broker(tmp_path / "b", tmp_path / "a")
    with pytest.raises(UserError, match="in use"):
        second.manager.open()
    first.manager.close()
    # The refused one has let go of the directory that it had got.
    Broker(tmp_path / "b").start().manager.close()


def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    Broker(tmp_path).start().manager.close()
    other = Broker(tmp_path)
    other.manager.open()
    with pytest.raises(UserError, match="belongs to cluster cluster"):
        other.manager.claim("another", 1)
    other.crash()


def test_a_stop_without_a_log_that_could_not_be_opened_is_not_clean(tmp_path: Path) -> None:
    broker = crashed_without_room(tmp_path)
    broker.manager.close()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    again = Broker(tmp_path).start()
    assert content(again.manager.log(tp("x"))) == [(1, b"2")]
    again.manager.close()


def test_a_clean_shutdown_marker_that_there_is_no_room_to_remove_goes_later(tmp_path: Path) -> None:
    before = Broker(tmp_path).start()
    append(before.manager.create(tp("x")), ("k", "v"))
    before.manager.close()
    broker = Broker(tmp_path)
    broker.files.no_room_for_names = True
    broker.start()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    assert content(broker.manager.log(tp("x"))) == [(0, b"v")]
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    assert broker.manager.online_directories
    broker.files.no_room_for_names = False
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    broker.crash()


def test_bad_lists_of_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="twice"):
        Broker(tmp_path, Path(f"{tmp_path}/"))
    with pytest.raises(UserError, match=r"log\.dirs"):
        Broker()


def test_facts_of_directories(tmp_path: Path) -> None:
    manager = Broker(tmp_path).start().manager
    log = manager.create(tp("x"))
    append(log, ("k", "v"))
    manager.create(tp("y"))
    (directory,) = manager.directories
    facts = directory.describe()
    assert facts.total_bytes > facts.usable_bytes > 0
    (replica,) = manager.registry.replicas_in(directory, {tp("x")})
    assert (replica.partition, replica.size, replica.offset_lag, replica.is_future) == (tp("x"), log.size, 0, False)
    assert len(list(manager.registry.replicas_in(directory))) == 2
    manager.close()
