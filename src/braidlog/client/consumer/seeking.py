"""Where a consumer reads, and where the cluster's logs begin and end."""

from __future__ import annotations

import time

from braidlog.client.arguments import ByPartition, Partitions, by_partition, partition_of, partitions_of
from braidlog.client.cluster_view import PartitionView, TopicView
from braidlog.client.consumer.core import ConsumerCore
from braidlog.client.consumer.offsets.auto_offset_reset import EARLIEST, LATEST
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata, OffsetAndTimestamp
from braidlog.client.consumer.partition_state import UNKNOWN
from braidlog.client.errors import RequestTimeout
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition


class Seeking(ConsumerCore):
    # Positions

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset."""
        with self._one_thread:
            self._begin_call()
            epoch = -1
            if isinstance(offset, OffsetAndMetadata):
                offset, _, epoch = offset
            if offset < 0:
                raise UserError(f"offset {offset} does not exist; seek_to_beginning() and seek_to_end() find the ends")
            with self._subscription.lock:
                self._subscription.state(partition_of(partition)).seek(offset, epoch)
            self._network.fetcher.schedule()

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Read from the start of these partitions (all that are assigned, unless some are named)."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Read only what comes from now on."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Partitions, target: int) -> None:
        with self._one_thread:
            self._begin_call()
            with self._subscription.lock:
                for each in partitions_of(partitions) or self._subscription.assignment():
                    self._subscription.state(each).request_reset(target)
            self._network.fetcher.schedule()

    def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """The offset of the next record that poll returns; waits until it is known."""
        with self._one_thread:
            self._begin_call()
            where = partition_of(partition)
            state = self._subscription.state(where)
            deadline = self._deadline(timeout)
            self._network.fetcher.schedule()
            while not state.has_position():
                self._wakeup.check()
                self._network.raise_failures()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RequestTimeout(f"where to read {where} is not known yet; see whether its leader answers")
                self._wakeup.wait(left)
            return int(state.position)

    def pause(self, partitions: Partitions) -> None:
        """Let poll return nothing of these until `resume`; they stay assigned."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Partitions) -> None:
        """Let poll return records of these again."""
        self._set_paused(partitions, False)
        self._network.fetcher.schedule()

    def _set_paused(self, partitions: Partitions, paused: bool) -> None:
        with self._one_thread:
            self._begin_call()
            with self._subscription.lock:
                for state in [self._subscription.state(each) for each in partitions_of(partitions)]:
                    state.is_paused = paused

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        with self._one_thread:
            return frozenset(state.topic_partition for state in self._subscription.states() if state.is_paused)

    # Offsets of the cluster

    def beginning_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        return self._ends(partitions, EARLIEST, timeout)

    def end_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offsets after the last records that this consumer may read."""
        return self._ends(partitions, LATEST, timeout)

    def _ends(self, partitions: Partitions, target: int, timeout: float | None) -> dict[TopicPartition, int]:
        with self._one_thread:
            self._begin_call()
            work = self._network.lookup.ask_with_retries(dict.fromkeys(partitions_of(partitions), target))
            found = self._run(work, timeout, "looking up offsets")
            return {each: answer.offset for each, answer in found.items()}

    def offsets_for_times(
        self, times_ms: ByPartition[int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None where there is none."""
        with self._one_thread:
            self._begin_call()
            targets = by_partition(times_ms, "times_ms", '{TopicPartition("orders", 0): 1700000000000}')
            for each, time_ms in targets.items():
                if time_ms < 0:
                    raise UserError(f"{each}: time {time_ms} is before 1970; give milliseconds since then")
            found = self._run(self._network.lookup.ask_with_retries(targets), timeout, "looking up offsets")
            return {
                each: OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
                if answer.offset >= 0
                else None
                for each, answer in found.items()
            }

    def lag(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """How many offsets lie between the position and the end of what may be read."""
        with self._one_thread:
            where = partition_of(partition)
            position = self.position(where, timeout)
            committed = self._network.settings.text("isolation.level").lower() == "read_committed"
            end = self._subscription.state(where).end_for(committed)
            if end == UNKNOWN or end < position:
                end = self.end_offsets([where], timeout)[where]
            return max(end - position, 0)

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """The topic's partitions (`index`, `leader`, `replicas`, `isr`)."""
        with self._one_thread:
            self._begin_call()
            left = self._api_timeout_s if timeout is None else timeout
            found = self._run(self._network.metadata.topic(topic, left), left + 1.0, "looking up partitions")
            return list(found.partitions)

    def list_topics(self, timeout: float | None = None) -> dict[str, TopicView]:
        """Every topic of the cluster that this client may see."""
        with self._one_thread:
            self._begin_call()
            return self._run(self._network.all_topics(), timeout, "listing topics")
