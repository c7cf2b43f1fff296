"""Which leader wrote which part of the log: the start offset of every leader epoch (KIP-101, KIP-320).

`leader-epoch-checkpoint`, text:

    0            format version
    2            number of entries
    0 0          epoch, first offset of that epoch
    3 1042

Epochs and offsets both ascend. The file is written when an entry changes and made durable by the next sync of the
log; one that is lost or torn is built again from the epochs that the batches carry. Messages of the old formats carry
none: where a log has them none are kept, and replicas find out by the high watermark where their logs part.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import Files

CHECKPOINT_NAME: Final = "leader-epoch-checkpoint"
NO_EPOCH: Final = -1


class LeaderEpochFileCache:
    def __init__(self, files: Files, directory: str) -> None:
        self.path = f"{directory}/{CHECKPOINT_NAME}"
        self._files = files
        self._epochs: list[int] = []
        self._starts: list[int] = []
        # Whether the format that is appended carries epochs.
        self._kept = True
        # The file lags behind; and beyond that, the file may not survive a power cut.
        self.changed = False
        self.unsynced = False

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """Go back to what `entries` returned before."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self.changed = True

    def assign(self, epoch: int, start_offset: int) -> bool:
        """The leader of `epoch` writes from `start_offset` on; false where that was known."""
        if not self._kept or (self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]):
            return False
        # Entries that contradict the new one stem from a log that was truncated since.
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            del self._epochs[-1]
            del self._starts[-1]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.changed = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """(largest epoch not above `epoch`, where it ended); None for an epoch this log does not know of.

        An epoch older than all that is left gets the start of the first one that is known.
        """
        if epoch == NO_EPOCH or not self._epochs:
            return None
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        after = bisect_right(self._epochs, epoch)
        if after == len(self._epochs):
            return None
        if after == 0:
            return epoch, self._starts[0]
        return self._epochs[after - 1], self._starts[after]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which `offset` was written; -1 where that is not known."""
        after = bisect_right(self._starts, offset)
        return self._epochs[after - 1] if after > 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now."""
        while self._starts and self._starts[-1] >= end_offset:
            del self._epochs[-1]
            del self._starts[-1]
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts at `start_offset` now; the epoch that covers it starts there too."""
        before = bisect_right(self._starts, start_offset)
        if before > 0 and (before > 1 or self._starts[0] < start_offset):
            epoch = self._epochs[before - 1]
            self._epochs[:before] = [epoch]
            self._starts[:before] = [start_offset]
            self.changed = True

    def keep(self, kept: bool) -> None:
        """With `kept` false none are known from now on."""
        self._kept = kept
        if not kept:
            self.clear()

    def clear(self) -> None:
        if self._epochs:
            self._epochs = []
            self._starts = []
            self.changed = True

    def load(self) -> bool:
        """Read the checkpoint; false where there is none. Raises CorruptLogError for a broken one.

        Kafka makes an empty file together with the log, and writes it with the first epoch.
        """
        data = self._files.read_bytes(self.path) if self._files.exists(self.path) else b""
        if not data:
            return False
        self.restore(decode_epochs(data, self.path))
        self.changed = False
        return True

    def save(self, *, sync: bool = False) -> None:
        """Write the checkpoint if it lags behind; with `sync` also make it survive a power cut."""
        if self.changed or (sync and self.unsynced):
            self._files.write_atomic(self.path, encode_epochs(self.entries), sync=sync)
            # Only now: what could not be written is tried again.
            self.changed = False
            self.unsynced = not sync

    def sync(self) -> None:
        """Make the last written checkpoint survive a power cut, together with a sync of the directory. Any thread."""
        if self.unsynced:
            self.unsynced = False
            self._files.sync_file(self.path)

    def move_to(self, directory: str) -> None:
        self.path = f"{directory}/{CHECKPOINT_NAME}"


def encode_epochs(entries: list[tuple[int, int]]) -> bytes:
    lines = ["0", str(len(entries))]
    lines += [f"{epoch} {start}" for epoch, start in entries]
    return ("\n".join(lines) + "\n").encode("ascii")


def decode_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    try:
        lines = data.decode("ascii").splitlines()
        if not lines or int(lines[0]) != 0:
            raise ValueError("expected version 0")
        entries: list[tuple[int, int]] = []
        for line in lines[2:]:
            epoch, start = line.split()
            entries.append((int(epoch), int(start)))
        if len(entries) != int(lines[1]):
            raise ValueError(f"expected {lines[1]} entries, found {len(entries)}")
        if not data.endswith(b"\n"):
            # Of the last offset some digits may be lost to a power cut, and what is left looks like an offset.
            raise ValueError("the last line is cut off")
    except (ValueError, IndexError) as problem:
        raise CorruptLogError(f"{path} is not a leader epoch checkpoint: {problem}") from None
    if entries != sorted(entries):
        raise CorruptLogError(f"{path} is not a leader epoch checkpoint: epochs are out of order")
    return entries
