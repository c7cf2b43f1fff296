"""What this broker asks of the controller, wherever that is: it is looked for again after each failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.cluster.image import BrokerInfo, ClusterImage
from braidlog.cluster.records import ProducerIdBlock
from braidlog.cluster.store import StoreConnectionError
from braidlog.config.broker import BrokerSettings
from braidlog.core.protocol_errors import (
    NONE,
    NotControllerError,
    ProtocolError,
    UnsupportedVersionError,
    from_code,
)
from braidlog.core.types import BrokerId, TopicPartition
from braidlog.net.outbound.errors import ClientError, NoConnection, RequestTimeout
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection
from braidlog.wire.apis import APIS
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.broker")

_RETRY_S: Final = 0.1

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
        request: Message,
        answer: type[Response],
        *,
        error_of: Callable[[Response], int],
        for_s: float,
    ) -> Response:
        """Tried again until there is a controller that answers, but no longer than `for_s`; raises ClientError."""
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
                    response = await connection.call(api_key, request, answer, timeout_s=timeout_s)
                    if error_of(response) != NotControllerError.code:
                        return response
                    problem = NoConnection(f"{connection.address} is not the controller any more")
                except TimeoutError:
                    problem = NoConnection("it does not answer")
                    continue
                except UnsupportedVersionError as unsupported:
                    problem = NoConnection(str(unsupported))
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
            AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch),
            AllocateProducerIdsResponse,
            error_of=lambda response: response.error_code,
            for_s=self._network.request_timeout_s,
        )
        _raise_if(response.error_code)
        first = response.producer_id_start
        return ProducerIdBlock(broker_id, first, first + response.producer_id_len - 1)

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        response = await self._channel.request(
            ApiKey.CONTROLLED_SHUTDOWN,
            ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch),
            ControlledShutdownResponse,
            error_of=lambda response: response.error_code,
            for_s=self._network.control_timeout_s,
        )
        _raise_if(response.error_code)
        return [TopicPartition(each.topic_name, each.partition_index) for each in response.remaining_partitions]

    def close(self) -> None:
        self._channel.close()


async def move_leaders_away(settings: BrokerSettings, ask: Callable[[], Awaitable[Sequence[TopicPartition]]]) -> bool:
    """Before a stop. `ask` returns what could not be moved; false where leaders stay that nobody took over."""
    if not settings.get_bool("controlled.shutdown.enable"):
        return False
    pause_s = settings.get_int("controlled.shutdown.retry.backoff.ms") / 1000
    tries = max(1, settings.get_int("controlled.shutdown.max.retries"))
    for number in range(1, tries + 1):
        try:
            left = await ask()
            if not left:
                return True
            log.info("controlled shutdown: %d leaders could not be moved yet, such as %s", len(left), left[0])
        except (ClientError, ProtocolError, StoreConnectionError) as problem:
            log.warning("controlled shutdown, attempt %d of %d: %s", number, tries, problem)
        if number < tries:
            await asyncio.sleep(pause_s)
    log.warning("stopping without a controlled shutdown: what this broker leads has no leader until others take over")
    return False


def _raise_if(error_code: int) -> None:
    if error_code != NONE:
        raise from_code(error_code)
