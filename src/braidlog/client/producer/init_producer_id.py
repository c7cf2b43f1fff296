"""Asks the cluster for a producer id, for producers without transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from braidlog.client.broker_errors import broker_error
from braidlog.client.errors import ClientError, ProducerFailedError
from braidlog.client.network.engine import Engine
from braidlog.client.network.nodes import Nodes
from braidlog.client.producer.accumulator.producer_id_state import ProducerIdState
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

INIT_PRODUCER_ID: Final = 22
_NO_TIMEOUT: Final = 0x7FFFFFFF
_SUBJECT: Final = "the request for a producer id"


class InitProducerIdHandler:
    def __init__(
        self,
        producer_id_state: ProducerIdState,
        engine: Engine,
        nodes: Nodes,
        *,
        pause_s: float,
        adopted: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._identity = producer_id_state
        self._engine = engine
        self._nodes = nodes
        self._pause_s = pause_s
        self._adopted = adopted
        self._failed = failed
        self._running = False

    def start(self) -> None:
        """On the engine's thread; one at a time."""
        if not self._running:
            self._running = True
            self._engine.spawn("get a producer id", self._run())

    async def _run(self) -> None:
        try:
            done = await self._asked()
            while not done:
                await asyncio.sleep(self._pause_s)
                done = await self._asked()
        finally:
            self._running = False

    async def _asked(self) -> bool:
        """Whether there is nothing more to ask."""
        try:
            connection = await self._nodes.any()
            answer = await connection.call(
                INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT),
                InitProducerIdResponse,
                timeout_s=self._nodes.request_timeout_s,
            )
            if answer.error_code != NONE:
                raise broker_error(answer.error_code, _SUBJECT)
        except (ClientError, ProtocolError) as problem:
            if problem.retriable:
                self._nodes.problems.failed(_SUBJECT, problem)
                return False
            reason = f"no producer id, which idempotence needs ({problem}); enable_idempotence=False does without"
            self._failed(ProducerFailedError(reason))
            return True
        self._nodes.problems.recovered(_SUBJECT)
        self._identity.set_producer_id_and_epoch(answer.producer_id, answer.producer_epoch)
        self._adopted()
        return True
