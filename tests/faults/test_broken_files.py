"""Files that a crash tore or a disk damaged: the broker is stopped, the files are broken, it starts, clients read.

One start looks at many damages at once: every partition holds the same records and gets another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tools.peers.process import ProcessFailed

from braidlog.wire.records.batch import iterate_headers
from support.broker import Broker, start_braidlog
from support.confluent import create_topic
from support.eventually import eventually
from support.numbered import NumberedWriter, read_numbers
from support.ports import lasting_port

TOPIC = "records"
BATCHES = 4
BATCH = 3
KEPT = (BATCHES - 1) * BATCH


class Place:
    """A data directory and a port that a broker comes back to."""

    def __init__(self, tmp_path: Path) -> None:
        self.data_dir = tmp_path / "data"
        self.port = lasting_port()
        self.bootstrap = f"127.0.0.1:{self.port}"

    @contextmanager
    def life(self, **settings: str) -> Iterator[Broker]:
        given = {"braidlog.http.listen": "", **{key.replace("_", "."): value for key, value in settings.items()}}
        with start_braidlog(self.data_dir, given, port=self.port) as broker:
            yield broker

    def write(self, partitions: int, batches: int = BATCHES, **config: str) -> NumberedWriter:
        """A topic whose partitions hold `batches` batches of numbered records each."""
        create_topic(self.bootstrap, TOPIC, partitions, **config)
        # A flush sends at once. Before it nothing is sent, so that each is one batch, however slow the machine is.
        writer = NumberedWriter(self.bootstrap, {TOPIC: partitions}, linger_ms=60_000)
        self.append(writer, batches)
        return writer

    def append(self, writer: NumberedWriter, batches: int) -> None:
        for _ in range(batches):
            writer.send(BATCH)
            writer.flush()

    def log_file(self, partition: int) -> Path:
        """The active segment."""
        return max((self.data_dir / f"{TOPIC}-{partition}").glob("*.log"))

    def read(self, partitions: int) -> list[list[tuple[int, int]]]:
        found = read_numbers(self.bootstrap, [(TOPIC, index) for index in range(partitions)])
        return [found[TOPIC, index] for index in range(partitions)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def batches_of(path: Path) -> list[tuple[int, int]]:
    """(position, size) of the batches of a segment."""
    content = path.read_bytes()
    return [(header.position, header.size) for header in iterate_headers(content, 0, len(content))]


def counted(count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(count)]


# --- the log itself


def test_the_tail_cut_at_every_byte_of_the_last_batch(place: Place) -> None:
    with place.life() as broker:
        place.write(1)
        broker.kill()
    _, size = batches_of(place.log_file(0))[-1]
    broken = Place(place.data_dir.parent / "broken")
    with broken.life() as broker:
        writer = broken.write(size)
        broker.kill()
    for index in range(size):
        position, own_size = batches_of(broken.log_file(index))[-1]
        assert own_size == size
        with broken.log_file(index).open("r+b") as file:
            file.truncate(position + index)
    with broken.life() as broker:
        for index, found in enumerate(broken.read(size)):
            assert found == counted(KEPT), f"cut {index} bytes into the last batch"
        reported = [line for line in broker.process.lines if "are lost" in line]
        assert len(reported) == size - 1, (
            "each torn batch is named; one that is gone without trace leaves nothing to name"
        )
        for index in range(1, size):
            [saved] = (broken.data_dir / f"{TOPIC}-{index}").glob("lost-*.tail")
            assert saved.stat().st_size == index
        # The log goes on where it was cut: a new producer's records follow without a gap.
        again = NumberedWriter(broken.bootstrap, {TOPIC: size})
        again.send(1)
        again.flush()
        assert all(found == [*counted(KEPT), (KEPT, 0)] for found in broken.read(size))
    assert writer.acknowledged == size * BATCHES * BATCH


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def test_a_flipped_bit_costs_what_follows_it_and_is_named(place: Place) -> None:
    partitions = 6
    with place.life() as broker:
        place.write(partitions)
        broker.kill()
    tails = []
    for index in range(1, partitions):
        path = place.log_file(index)
        position, size = batches_of(path)[1]
        # In the offset, the length, the checksum, the header and the records of the second batch.
        _flip(path, position + (3, 11, 18, 30, size - 5)[index - 1])
        tails.append(path.read_bytes()[position:])
    with place.life() as broker:
        found = place.read(partitions)
        assert found[0] == counted(BATCHES * BATCH), "the partition beside them is whole"
        for index in range(1, partitions):
            assert found[index] == counted(BATCH)
            [line] = [line for line in broker.process.lines if f"{TOPIC}-{index}/" in line and "are lost" in line]
            named = re.search(r"offsets (\d+) to ([^)]+)\)", line)
            assert named is not None, line
            assert int(named[1]) == BATCH
            # Where a header is damaged its own word about the end is not believed.
            assert named[2] in (str(BATCHES * BATCH - 1), "an unknown end")
            [saved] = (place.data_dir / f"{TOPIC}-{index}").glob("lost-*.tail")
            assert str(saved) in line
            assert saved.read_bytes() == tails[index - 1], "everything cut off is kept aside"
        again = NumberedWriter(place.bootstrap, {TOPIC: partitions})
        again.send(1)
        again.flush()
        assert place.read(partitions)[1] == [*counted(BATCH), (BATCH, 0)]


def test_a_flipped_bit_in_an_old_segment_leaves_the_rest_readable(place: Place) -> None:
    with place.life() as broker:
        place.write(2, batches=40, segment_bytes="1024")
        assert broker.stop() == 0
    first, second, *_ = sorted((place.data_dir / f"{TOPIC}-1").glob("*.log"))
    _flip(first, first.stat().st_size - 5)
    with place.life() as broker:
        # A clean stop is trusted, so nothing is read at the start; readers are told by the checksum.
        assert "are lost" not in broker.log()
        assert place.read(1) == [counted(120)]
        start = int(second.stem)
        found = read_numbers(place.bootstrap, [(TOPIC, 1)], start=start)[TOPIC, 1]
        assert found == counted(120)[start:]
        assert broker.stop() == 0


# --- everything beside the log


def _missing(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut_in_half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 - 1] if len(content) > 2 else b"")


def _garbage(path: Path) -> None:
    path.write_bytes(Random(path.name).randbytes(max(37, path.stat().st_size)))


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(max(40, path.stat().st_size)))


BESIDE_THE_LOG = (
    "*/*.index",
    "*/*.timeindex",
    "*/*.txnindex",
    "*/*.snapshot",
    "*/leader-epoch-checkpoint",
    "*/partition.metadata",
    "*-checkpoint",
)


@pytest.mark.parametrize(
    ("damage", "clean"),
    [
        (_missing, False),
        (_garbage, True),
        (_zeros, False),
        pytest.param(_missing, True, marks=pytest.mark.long),
        pytest.param(_empty, True, marks=pytest.mark.long),
        pytest.param(_cut_in_half, False, marks=pytest.mark.long),
    ],
)
def test_all_files_beside_the_logs_broken_at_once(place: Place, damage: Callable[[Path], None], clean: bool) -> None:
    with place.life(log_flush_offset_checkpoint_interval_ms="100", log_initial_task_delay_ms="50") as broker:
        writer = place.write(3, batches=20, segment_bytes="1024", index_interval_bytes="200")
        if clean:
            assert broker.stop() == 0
        else:
            eventually((place.data_dir / "recovery-point-offset-checkpoint").exists)
            broker.kill()
    for pattern in BESIDE_THE_LOG:
        paths = sorted(place.data_dir.glob(pattern))
        assert paths or pattern == "*/*.txnindex", f"nothing to break for {pattern}"
        for path in paths:
            damage(path)
    with place.life() as broker:
        assert place.read(3) == [counted(60)] * 3
        # The producer from before is known again: its sequence numbers go on.
        place.append(writer, 3)
        writer.check(place.bootstrap)
        assert "a bug" not in broker.log(), broker.log()
        assert "Traceback" not in broker.log(), broker.log()
        assert broker.stop() == 0
    with place.life() as broker:
        assert "a clean stop" in broker.log()
        assert place.read(3) == [counted(69)] * 3


def test_a_missing_identity_is_written_again_and_a_broken_one_is_explained(place: Place) -> None:
    with place.life() as broker:
        place.write(1)
        assert broker.stop() == 0
    identity = place.data_dir / "meta.properties"
    written = identity.read_text()
    identity.unlink()
    with place.life() as broker:
        assert place.read(1) == [counted(BATCHES * BATCH)]
        assert broker.stop() == 0
    assert [line for line in identity.read_text().splitlines() if "cluster.id" in line] == [
        line for line in written.splitlines() if "cluster.id" in line
    ]
    identity.write_bytes(b"\x00garbage")
    with pytest.raises(ProcessFailed, match=r"ended with [1-9][\s\S]*meta\.properties") as failure, place.life():
        pass
    assert "Traceback" not in str(failure.value)


# --- the embedded store


def _journal(place: Place) -> Path:
    return max(place.data_dir.glob("braidlog-store.journal-*"))


@pytest.mark.parametrize("how", ["cut", "appended"])
def test_a_torn_journal_of_the_store_loses_only_what_was_torn(place: Place, how: str) -> None:
    with place.life() as broker:
        place.write(1)
        create_topic(place.bootstrap, "last")
        broker.kill()
    journal = _journal(place)
    content = journal.read_bytes()
    if how == "cut":
        journal.write_bytes(content[:-7])
    else:
        journal.write_bytes(content + content[:9])
    with place.life() as broker:
        assert place.read(1) == [counted(BATCHES * BATCH)]
        if how == "cut":
            # Its registration went; creating it again works, whatever its directory still holds.
            create_topic(place.bootstrap, "last" if "set aside last" in broker.log() else "another")
        else:
            assert read_numbers(place.bootstrap, [("last", 0)]) == {("last", 0): []}
        assert broker.stop() == 0


def test_a_damaged_journal_is_not_guessed_at(place: Place) -> None:
    with place.life() as broker:
        place.write(1)
        broker.kill()
    journal = _journal(place)
    _flip(journal, 40)
    with pytest.raises(ProcessFailed, match=r"ended with [1-9][\s\S]*damaged at byte") as failure, place.life():
        pass
    assert "Traceback" not in str(failure.value)
    assert "Restore the file" in str(failure.value)
    _flip(journal, 40)
    with place.life():
        assert place.read(1) == [counted(BATCHES * BATCH)]
