"""Produce requests that are ahead of the controller's word to this broker (hot: compiled by mypyc).

A producer may hear sooner than this broker that it leads a partition: the last leader names its successor when it
refuses a request, and a broker that has just started opens its port before it has its roles. Were its first request
refused, and the next one on the same connection taken a moment later, an idempotent producer's sequence numbers would
have a gap. librdkafka mends that with a new epoch for all partitions, under which a record that is in a log already is
written once more. So such a request waits a moment for the role, and its connection with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from braidlog.broker.handlers.records.produce import ProduceHandler
from braidlog.core.timeout_queue import CallLater
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.wire.generated.produce import ProduceRequest

log = logging.getLogger("braidlog.produce")

# The controller tells the new leader first thing; a producer that is wrong is not held up for long.
_NEXT_LEADER_WAIT_S: Final = 1.0
# After a start the controller may have roles for many partitions.
_FIRST_ROLE_WAIT_S: Final = 5.0
# After the first roles. What has none then is not going to get one: its topic was deleted while this broker was down.
_FIRST_ROLES_WITHIN_S: Final = 30.0
_BY_TOPIC_ID_FROM: Final = 13


class AwaitedRoles:
    def __init__(
        self,
        on_disk: Iterable[TopicPartition],
        registry: PartitionRegistry,
        handler: ProduceHandler,
        call_later: CallLater,
    ) -> None:
        """`on_disk`: what this broker has replicas of when it starts."""
        # Those whose roles the controller has not named since the start.
        self._unnamed = set(on_disk)
        self._registry = registry
        self._handler = handler
        self._call_later = call_later
        # As an ordered set: there may be one for each connection.
        self._held: dict[_HeldProduce, None] = {}
        self._any_named = False
        handler.hold = self.hold

    def hold(self, request: ProduceRequest, exchange: Exchange) -> bool:
        """Whether the request waits here."""
        awaited: list[TopicPartition] = []
        by_id = exchange.version >= _BY_TOPIC_ID_FROM
        wait_s = _NEXT_LEADER_WAIT_S
        for topic in request.topic_data:
            name = self._registry.name_of(topic.topic_id) if by_id else topic.name
            if name is None:
                # Clients that name topics by their ids only send the refused request again.
                continue
            for data in topic.partition_data:
                partition = self._registry.get(name, data.index)
                if partition is None:
                    if self._unnamed and TopicPartition(name, data.index) in self._unnamed:
                        awaited.append(TopicPartition(name, data.index))
                        wait_s = _FIRST_ROLE_WAIT_S
                elif partition.may_lead_soon:
                    awaited.append(TopicPartition(name, data.index))
        if not awaited:
            return False
        # The producer's next batches must not overtake these.
        exchange.channel.mute()
        held = _HeldProduce(request, exchange, set(awaited))
        self._held[held] = None
        self._call_later(wait_s, lambda: self._take_up(held))
        return True

    def named(self, partitions: Sequence[TopicPartition]) -> None:
        """The controller has said who leads these."""
        if self._unnamed:
            self._unnamed.difference_update(partitions)
            if not self._any_named:
                self._any_named = True
                self._call_later(_FIRST_ROLES_WITHIN_S, self._unnamed.clear)
        for held in list(self._held):
            held.awaited.difference_update(partitions)
            if not held.awaited:
                self._take_up(held)

    def _take_up(self, held: _HeldProduce) -> None:
        if held not in self._held:
            return
        del self._held[held]
        try:
            self._handler.begin(held.request, held.exchange)
        except Exception as problem:
            log.error("a produce failed, a bug in braidlog, please report it", exc_info=problem)
            held.exchange.channel.close("internal error")


class _HeldProduce:
    def __init__(self, request: ProduceRequest, exchange: Exchange, awaited: set[TopicPartition]) -> None:
        self.request = request
        self.exchange = exchange
        self.awaited = awaited
