"""What this broker asks of the controller, wherever that is: it is looked for again after each failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final, TypeVar

from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.cluster.image import BrokerInfo, ClusterImage, PartitionInfo
from braidlog.cluster.records import ProducerIdBlock
from braidlog.cluster.store import LeaseExpiredError, SessionExpiredError, SessionLease, StoreConnectionError
from braidlog.config.broker import BrokerSettings
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.protocol_errors import (
    NONE,
    NotControllerError,
    ProtocolError,
    from_code,
)
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.net.outbound.errors import ClientError, NoConnection, RequestTimeout
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection
from braidlog.wire.apis import APIS
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from braidlog.wire.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.broker")

_RETRY_S: Final = 0.1
# How often a broker that waits for others to take over looks whether there are any.
_LOOK_S: Final = 0.2

Response = TypeVar("Response", bound=Message)


class BrokerToControllerChannel:
    """`controller` says who the controller is as far as this broker knows, None where it knows of none."""

    def __init__(self, network: InterBrokerNetwork, controller: Callable[[], BrokerInfo | None]) -> None:
        self._network = network
        self._controller = controller
        self._link: ReconnectingConnection | None = None
        self._linked_to: BrokerInfo | None = None

    async def request(
        self,
        api_key: int,
        request_at: Callable[[int], Message],
        answer: type[Response],
        *,
        error_of: Callable[[Response], int],
        for_s: float,
    ) -> Response:
        """Tried again until there is a controller that answers, but no longer than `for_s`; raises ClientError.

        `request_at` makes the request in a version. Raises UnsupportedVersionError where the controller is too old.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + for_s
        problem: ClientError = NoConnection("this broker knows of no controller")
        while True:
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise RequestTimeout(
                    f"no controller has answered {APIS[api_key].name} within {for_s:g} s: {problem}"
                ) from problem
            link = self._find()
            if link is not None:
                try:
                    async with asyncio.timeout(left_s):
                        connection = await link.get()
                    timeout_s = min(left_s, self._network.request_timeout_s)
                    request = request_at(connection.version_for(api_key))
                    response = await connection.call(api_key, request, answer, timeout_s=timeout_s)
                    if error_of(response) != NotControllerError.code:
                        return response
                    problem = NoConnection(f"{connection.address} is not the controller any more")
                except TimeoutError:
                    problem = NoConnection("it does not answer")
                    continue
                except ClientError as failure:
                    problem = failure
            # Metadata tells of another one soon.
            await asyncio.sleep(min(_RETRY_S, max(deadline - loop.time(), 0.0)))

    def _find(self) -> ReconnectingConnection | None:
        controller = self._controller()
        if controller is None:
            return None
        if self._link is None or self._linked_to != controller:
            self.close()
            self._linked_to = controller
            self._link = self._network.connect(controller, "to-controller")
        return self._link

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class ControllerClient:
    """The requests of this broker to the controller of another, as calls that raise what it answers."""

    def __init__(self, network: InterBrokerNetwork, image: Callable[[], ClusterImage]) -> None:
        self._network = network
        self._image = image
        self._channel = BrokerToControllerChannel(network, self._controller)

    def _controller(self) -> BrokerInfo | None:
        image = self._image()
        return image.brokers.get(image.controller_id)

    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        response = await self._channel.request(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            lambda version: AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch),
            AllocateProducerIdsResponse,
            error_of=lambda response: response.error_code,
            for_s=self._network.request_timeout_s,
        )
        _raise_if(response.error_code)
        first = response.producer_id_start
        return ProducerIdBlock(broker_id, first, first + response.producer_id_len - 1)

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Raises NoConnection at once where no controller is known: a stop does not wait for an election to begin."""
        if self._controller() is None:
            raise NoConnection("this broker knows of no controller")
        response = await self._channel.request(
            ApiKey.CONTROLLED_SHUTDOWN,
            lambda version: ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch),
            ControlledShutdownResponse,
            error_of=lambda response: response.error_code,
            for_s=self._network.control_timeout_s,
        )
        _raise_if(response.error_code)
        return [TopicPartition(each.topic_name, each.partition_index) for each in response.remaining_partitions]

    async def alter_partition(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange]
    ) -> list[AlterPartitionResult]:
        """What the answer leaves out is not among the results."""
        image = self._image()
        named = {change.partition.topic: image.topic(change.partition.topic) for change in changes}
        ids = {name: topic.topic_id for name, topic in named.items() if topic is not None}
        response = await self._channel.request(
            ApiKey.ALTER_PARTITION,
            lambda version: alter_partition_request(broker_id, broker_epoch, changes, ids, version),
            AlterPartitionResponse,
            error_of=lambda response: response.error_code,
            for_s=self._network.request_timeout_s,
        )
        _raise_if(response.error_code)
        return read_alter_partition(response, {topic_id: name for name, topic_id in ids.items()})

    def close(self) -> None:
        self._channel.close()


async def move_leaders_away(
    settings: BrokerSettings,
    lease: Callable[[], SessionLease],
    ask: Callable[[], Coroutine[None, None, Sequence[TopicPartition]]],
    is_alone: Callable[[], bool] = lambda: False,
) -> bool:
    """Before a stop. `ask` returns what could not be moved; false where leaders stay that nobody took over.

    Without a session no controller moves anything: once the current `lease` is over, nobody is waited for. Nor is it
    tried again by the last broker of a cluster that stops as a whole, which `is_alone`.
    """
    if not settings.get_bool("controlled.shutdown.enable"):
        return False
    now = asyncio.get_running_loop().time
    pause_s = settings.get_int("controlled.shutdown.retry.backoff.ms") / 1000
    tries = max(1, settings.get_int("controlled.shutdown.max.retries"))
    for number in range(1, tries + 1):
        try:
            left = await _while_leased(lease, ask)
            if not left:
                return True
            log.info("controlled shutdown: %d leaders could not be moved yet, such as %s", len(left), left[0])
        except (LeaseExpiredError, SessionExpiredError) as problem:
            log.warning("stopping without a controlled shutdown: %s", problem)
            return False
        except (ClientError, ProtocolError, StoreConnectionError) as problem:
            log.warning("controlled shutdown, attempt %d of %d: %s", number, tries, problem)
        deadline = now() + (pause_s if number < tries else 0.0)
        # The others leave one by one, and nobody says of the last of them that it was.
        while not is_alone() and (left_s := deadline - now()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, _LOOK_S))
        if is_alone():
            log.info("stopping without a controlled shutdown: no other broker is left to take over")
            return False
    log.warning("stopping without a controlled shutdown: what this broker leads has no leader until others take over")
    return False


async def _while_leased(
    lease: Callable[[], SessionLease], ask: Callable[[], Coroutine[None, None, Sequence[TopicPartition]]]
) -> Sequence[TopicPartition]:
    """The answer; raises LeaseExpiredError where the session ends before it comes."""
    lease().check()
    asking = asyncio.create_task(ask(), name="controlled shutdown")
    try:
        # Each answer of the store prolongs the lease.
        while not asking.done():
            await asyncio.wait([asking], timeout=lease().remaining_s())
            if not asking.done():
                lease().check()
        return asking.result()
    finally:
        asking.cancel()


def alter_partition_request(
    broker_id: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange], ids: Mapping[str, bytes], version: int
) -> AlterPartitionRequest:
    """Topics are known by id from version 2 on, those without one left out; replicas have epochs from version 3 on."""
    topics: dict[str, RequestTopicData] = {}
    for change in changes:
        name = change.partition.topic
        if version >= 2 and name not in ids:
            continue
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = (
                RequestTopicData(topic_id=ids[name], partitions=[])
                if version >= 2
                else RequestTopicData(topic_name=name, partitions=[])
            )
        data = RequestPartitionData(
            partition_index=change.partition.partition,
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
        )
        if version >= 3:
            data.new_isr_with_epochs = [BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in change.isr]
        else:
            data.new_isr = [each for each, _ in change.isr]
        if version >= 1:
            data.leader_recovery_state = change.recovery_state
        topic.partitions.append(data)
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def read_alter_partition(response: AlterPartitionResponse, names: Mapping[bytes, str]) -> list[AlterPartitionResult]:
    results: list[AlterPartitionResult] = []
    for topic in response.topics:
        name = topic.topic_name or names.get(topic.topic_id)
        if name is None:
            continue
        for data in topic.partitions:
            where = TopicPartition(name, data.partition_index)
            if data.error_code != NONE:
                results.append(AlterPartitionResult(where, from_code(data.error_code)))
                continue
            info = PartitionInfo(
                leader=BrokerId(data.leader_id),
                leader_epoch=LeaderEpoch(data.leader_epoch),
                isr=tuple(BrokerId(each) for each in data.isr),
                replicas=(),
                partition_epoch=data.partition_epoch,
                leader_recovery_state=data.leader_recovery_state,
            )
            results.append(AlterPartitionResult(where, None, info))
    return results


def _raise_if(error_code: int) -> None:
    if error_code != NONE:
        raise from_code(error_code)
