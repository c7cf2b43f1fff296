from __future__ import annotations

import asyncio
from random import Random

import pytest

from braidlog.broker.interbroker.controller_channel import BrokerToControllerChannel
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.cluster.image import BrokerInfo
from braidlog.config.broker import BrokerSettings
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId, Endpoint
from braidlog.net.outbound.errors import RequestTimeout
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from support.scripted_broker import HANG_UP, SILENCE, Answer, ScriptedBroker


def network() -> InterBrokerNetwork:
    return InterBrokerNetwork(BrokerId(0), "PLAINTEXT", lambda: BrokerSettings({}), Random(1))


async def allocate(channel: BrokerToControllerChannel, for_s: float) -> AllocateProducerIdsResponse:
    return await channel.request(
        67,
        AllocateProducerIdsRequest(broker_id=0),
        AllocateProducerIdsResponse,
        error_of=lambda response: response.error_code,
        for_s=for_s,
    )


def test_it_looks_for_the_controller_until_one_answers() -> None:
    async def run() -> None:
        block = AllocateProducerIdsResponse(producer_id_start=7)
        first: list[Answer] = [HANG_UP, AllocateProducerIdsResponse(error_code=NotControllerError.code)]
        async with (
            ScriptedBroker(lambda key, request: first.pop(0), offered=(67, 18)) as old,
            ScriptedBroker(lambda key, request: block, offered=(67, 18)) as new,
        ):

            def controller() -> BrokerInfo | None:
                if not asked:
                    asked.append(1)
                    return None
                port = old.port if first else new.port
                return BrokerInfo(BrokerId(1), 1, (Endpoint("PLAINTEXT", "127.0.0.1", port),))

            asked: list[int] = []
            channel = BrokerToControllerChannel(network(), controller)
            assert (await allocate(channel, 20.0)).producer_id_start == 7
            channel.close()

    asyncio.run(run())


def test_it_gives_up_in_time() -> None:
    async def run() -> None:
        async with ScriptedBroker(lambda key, request: SILENCE, offered=(67, 18)) as broker:
            at = BrokerInfo(BrokerId(1), 1, (Endpoint("PLAINTEXT", "127.0.0.1", broker.port),))
            channel = BrokerToControllerChannel(network(), lambda: at)
            with pytest.raises(RequestTimeout, match="AllocateProducerIds"):
                await allocate(channel, 0.2)
            channel.close()
        with pytest.raises(RequestTimeout, match="knows of no controller"):
            await allocate(BrokerToControllerChannel(network(), lambda: None), 0.05)

    asyncio.run(run())
