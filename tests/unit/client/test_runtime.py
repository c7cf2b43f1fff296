"""Clients take time, random numbers, engine and network from where they are made."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

from braidlog.client import Admin, Consumer, Producer
from braidlog.client.network.engine import Engine
from braidlog.client.runtime import ClientRuntime, clients_in, current_runtime
from braidlog.core.clock import ManualClock
from braidlog.net.outbound.connector import Address, SocketConnector
from braidlog.net.outbound.errors import ClientError, NoConnection
from braidlog.net.outbound.transport import PlainTransport, Transport
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import Simulation
from braidlog.wire.generated.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from braidlog.wire.message import Message
from support.scripted_broker import Answer, ScriptedBroker

NOWHERE = "broker.invalid:9092"


class Redirected:
    """Leads every address to one broker."""

    def __init__(self, port: int) -> None:
        self.asked: list[Address] = []
        self._port = port
        self._sockets = SocketConnector(_clear_text, 5.0)

    async def connect(self, address: Address) -> Transport:
        self.asked.append(address)
        return await self._sockets.connect(("127.0.0.1", self._port))

    async def explain(self, address: Address, problem: NoConnection) -> ClientError:
        return problem


async def _clear_text(loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
    return PlainTransport(loop, connected)


def _metadata(_: int, request: Message) -> Answer:
    brokers = [MetadataResponseBroker(node_id=7, host="broker.invalid", port=9092)]
    return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="orders")])


async def test_a_client_goes_through_the_connector_that_it_is_given() -> None:
    async with ScriptedBroker(_metadata) as broker:
        connector = Redirected(broker.port)

        def topics() -> list[str]:
            with clients_in(ClientRuntime(connector=connector)), Admin(bootstrap_servers=NOWHERE) as admin:
                return [topic.name for topic in admin.list_topics()]

        assert await asyncio.to_thread(topics) == ["orders"]
        assert connector.asked == [("broker.invalid", 9092)]


def test_clients_have_the_engine_the_clock_and_the_random_numbers_of_their_runtime() -> None:
    made: list[str] = []

    def new_engine(name: str) -> Engine:
        made.append(name)
        return Engine(name)

    runtime = ClientRuntime(clock=ManualClock(), random=Random(1), new_engine=new_engine)
    with clients_in(runtime):
        producer, consumer = Producer(bootstrap_servers=NOWHERE), Consumer(bootstrap_servers=NOWHERE)
    assert made == ["producer", "consumer"]
    assert producer._accumulator.clock is runtime.clock
    assert consumer._network.clock is runtime.clock
    assert producer._nodes._random is consumer._network.nodes._random is runtime.random
    consumer.close()
    producer.close(0)


def test_a_runtime_ends_with_its_block() -> None:
    with clients_in(runtime := ClientRuntime()):
        assert current_runtime() is runtime
    assert current_runtime() is not runtime


def test_retries_wait_by_the_clock_of_the_runtime() -> None:
    """The loop of a runtime has the time of its clock: here neither takes any."""
    with Simulation(1) as simulation:
        runtime = SimulatedProgram(simulation, "program").runtime
        began = simulation.clock.monotonic()
        retry = runtime.retry(1.0, 0.4, 0.4)
        tries = 0
        while simulation.loop.run_until_complete(retry.again()):
            tries += 1
        assert tries == 3
        assert simulation.clock.monotonic() - began == pytest.approx(1.0)
