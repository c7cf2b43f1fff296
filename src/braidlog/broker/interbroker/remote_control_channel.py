"""How the controller reaches another broker: each control request in the newest version that both sides speak."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, assert_never

from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.cluster import control_wire
from braidlog.cluster.control_requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from braidlog.cluster.control_wire import EncodedUpdateMetadata
from braidlog.cluster.image import BrokerInfo
from braidlog.core.protocol_errors import UnsupportedVersionError
from braidlog.core.time_slice import run_in_slices
from braidlog.net.outbound.errors import NoConnection
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.leader_and_isr import LeaderAndIsrResponse
from braidlog.wire.generated.stop_replica import StopReplicaResponse
from braidlog.wire.generated.update_metadata import UpdateMetadataResponse

# Brokers of two releases, and the change before the last.
_KEPT: Final = 4


class _Encoded(NamedTuple):
    request: UpdateMetadata
    body: EncodedUpdateMetadata


class UpdateMetadataEncoder:
    """Encodes what goes to many brokers once for each version; requests are the same if they share their parts."""

    def __init__(self) -> None:
        self._recent: deque[_Encoded] = deque(maxlen=_KEPT)
        # Channels ask at the same time, and encoding lets others run.
        self._one_at_a_time = asyncio.Lock()

    async def encode(self, request: UpdateMetadata, version: int) -> EncodedUpdateMetadata:
        async with self._one_at_a_time:
            for known, body in self._recent:
                if body.version == version and _same_but_for_receiver(known, request):
                    return body.for_broker(request.broker_epoch)
            body = await run_in_slices(control_wire.encode_update_metadata(request, version))
            assert isinstance(body, EncodedUpdateMetadata)
            self._recent.append(_Encoded(request, body))
            return body


def _same_but_for_receiver(one: UpdateMetadata, other: UpdateMetadata) -> bool:
    return (
        one.partitions is other.partitions
        and one.brokers is other.brokers
        and one.controller_epoch == other.controller_epoch
        and one.controller_id == other.controller_id
    )


class RemoteControlChannel:
    def __init__(self, network: InterBrokerNetwork, broker: BrokerInfo, encoder: UpdateMetadataEncoder) -> None:
        self._network = network
        self._broker = broker
        self._encoder = encoder
        self._link = network.connect(broker, "controller")

    async def send(self, request: ControlRequest) -> ControlResponse:
        connection = await self._link.get()
        try:
            if isinstance(request, LeaderAndIsr):
                return await self._leader_and_isr(connection, request)
            if isinstance(request, UpdateMetadata):
                return await self._update_metadata(connection, request)
            if isinstance(request, StopReplica):
                return await self._stop_replica(connection, request)
        except UnsupportedVersionError as problem:
            # It may be replaced by a newer one at the same address.
            raise NoConnection(f"broker {self._broker.id} takes no control requests: {problem}") from problem
        assert_never(request)

    async def reach(self) -> None:
        await self._link.get()

    def when_broken(self, callback: Callable[[], None]) -> None:
        self._link.on_broken = lambda _: callback()

    async def close(self) -> None:
        self._link.close()

    async def _leader_and_isr(self, connection: PipelinedConnection, request: LeaderAndIsr) -> ControlResponse:
        version = connection.version_for(ApiKey.LEADER_AND_ISR)
        message = control_wire.leader_and_isr_message(request, version, self._network.listener)
        response = await connection.post(ApiKey.LEADER_AND_ISR, version, message, self._network.control_timeout_s)
        assert isinstance(response, LeaderAndIsrResponse)
        return control_wire.read_leader_and_isr_response(request, response)

    async def _update_metadata(self, connection: PipelinedConnection, request: UpdateMetadata) -> ControlResponse:
        version = connection.version_for(ApiKey.UPDATE_METADATA)
        message = await self._encoder.encode(request, version)
        response = await connection.post(ApiKey.UPDATE_METADATA, version, message, self._network.control_timeout_s)
        assert isinstance(response, UpdateMetadataResponse)
        return ControlResponse(response.error_code)

    async def _stop_replica(self, connection: PipelinedConnection, request: StopReplica) -> ControlResponse:
        version = connection.version_for(ApiKey.STOP_REPLICA)
        responses = []
        for message in control_wire.stop_replica_messages(request, version):
            response = await connection.post(ApiKey.STOP_REPLICA, version, message, self._network.control_timeout_s)
            assert isinstance(response, StopReplicaResponse)
            responses.append(control_wire.read_stop_replica_response(response))
        return control_wire.merged(responses)


class RemoteControlChannels:
    """Makes the channels of one controller; they share what they encode."""

    def __init__(self, network: InterBrokerNetwork) -> None:
        self._network = network
        self._encoder = UpdateMetadataEncoder()

    def connect(self, broker: BrokerInfo) -> RemoteControlChannel:
        return RemoteControlChannel(self._network, broker, self._encoder)
