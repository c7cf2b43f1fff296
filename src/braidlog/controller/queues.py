"""What brokers are told: for each one an ordered queue, one request in flight, sent again until it is answered.

A queue belongs to one registration of its broker: it is dropped with that broker epoch, and with the controller. Before
each request the session's lease is checked: a controller that may have lost its session says nothing.

A connection that breaks is made again even where nothing is to be said: a broker whose process is gone refuses it, long
before its session ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from braidlog.cluster.control_requests import ConnectToBroker, ControlChannel, ControlRequest, ControlResponse
from braidlog.cluster.image import BrokerInfo
from braidlog.cluster.store import SessionLease, StoreUnavailableError
from braidlog.core.protocol_errors import StaleControllerEpochError, UnknownServerError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId
from braidlog.net.outbound.errors import ClientError, ConnectionRefused

_FIRST_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 1.0

_log = logging.getLogger("braidlog.controller")


class ResponseListener(Protocol):
    def answered(self, broker: BrokerInfo, request: ControlRequest, response: ControlResponse) -> None: ...

    def fenced(self) -> None:
        """A broker knows a newer controller."""
        ...

    def refused(self, broker: BrokerInfo) -> None:
        """Nothing listens where this broker is registered."""
        ...


class _BrokerQueue:
    def __init__(self, broker: BrokerInfo, channel: ControlChannel, lease: SessionLease) -> None:
        self._lease = lease
        self._waiting: deque[ControlRequest] = deque()
        self._wake = asyncio.Event()
        self._put = self._done = 0
        # What to call once the request with this number is answered.
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()
        self._broken = False
        # Since when the broker is not reached, on the loop's clock; None while it is.
        self.unreachable_since: float | None = None
        self.use(broker, channel)

    def __len__(self) -> int:
        return self._put - self._done

    def use(self, broker: BrokerInfo, channel: ControlChannel) -> None:
        self.broker = broker
        self.channel = channel
        channel.when_broken(self._on_broken)

    def _on_broken(self) -> None:
        self._broken = True
        self._wake.set()

    def put(self, request: ControlRequest) -> None:
        self._waiting.append(request)
        self._put += 1
        self._wake.set()

    def when_empty_so_far(self, callback: Callable[[], None]) -> None:
        if self._done == self._put:
            callback()
        else:
            self._marks.append((self._put, callback))

    async def run(self, listener: ResponseListener) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                if self._broken:
                    await self._reach_again(listener)
                else:
                    await self._wake.wait()
            request = self._waiting.popleft()
            response = await self._send(request, listener)
            if response.error == StaleControllerEpochError.code:
                listener.fenced()
                return
            listener.answered(self.broker, request, response)
            self._done += 1
            while self._marks and self._marks[0][0] <= self._done:
                self._marks.popleft()[1]()

    async def _reach_again(self, listener: ResponseListener) -> None:
        self._broken = False
        try:
            await self.channel.reach()
            self.unreachable_since = None
        except ConnectionRefused:
            self._not_reached()
            listener.refused(self.broker)
        except ClientError as problem:
            self._not_reached()
            # It may be alive behind a network that is not: its session tells.
            _log.debug("broker %d is not reached: %s", self.broker.id, problem)

    def _not_reached(self) -> None:
        if self.unreachable_since is None:
            self.unreachable_since = asyncio.get_running_loop().time()

    async def _send(self, request: ControlRequest, listener: ResponseListener) -> ControlResponse:
        wait_s = 0.0
        refused = False
        while True:
            try:
                self._lease.check()
                response = await self.channel.send(request)
                self.unreachable_since = None
                return response
            except (ClientError, StoreUnavailableError) as problem:
                if isinstance(problem, ClientError):
                    self._not_reached()
                level = logging.DEBUG if wait_s else logging.WARNING
                _log.log(level, "broker %d was not told yet, it is tried again: %s", self.broker.id, problem)
                if isinstance(problem, ConnectionRefused) and not refused:
                    refused = True
                    listener.refused(self.broker)
            except Exception:
                # Its own broker's fault or ours, not the network's: the same request would fail the same way.
                _log.exception("broker %d could not be told of a change", self.broker.id)
                return ControlResponse(UnknownServerError.code)
            wait_s = min(wait_s * 2, _LONGEST_RETRY_S) or _FIRST_RETRY_S
            await asyncio.sleep(wait_s)

    def release(self) -> None:
        """It will not be answered any more: nothing waits for it."""
        while self._marks:
            self._marks.popleft()[1]()


class BrokerQueues:
    """One queue for each live broker; `follow` opens and drops them as brokers come and go."""

    def __init__(self, connect: ConnectToBroker, lease: SessionLease, listener: ResponseListener) -> None:
        self._connect = connect
        self._lease = lease
        self._listener = listener
        self._tasks = Tasks("controller to brokers")
        self._queues: dict[BrokerId, tuple[_BrokerQueue, asyncio.Task[None]]] = {}

    def follow(self, brokers: Mapping[BrokerId, BrokerInfo]) -> None:
        """Another registration is another queue; another address only another channel."""
        for broker_id in list(self._queues):
            queue = self._queues[broker_id][0]
            now = brokers.get(broker_id)
            if now is None or now.epoch != queue.broker.epoch:
                self._drop(broker_id)
            elif now != queue.broker:
                self._close(queue)
                queue.use(now, self._connect(now))
        for broker_id, info in brokers.items():
            if broker_id not in self._queues:
                queue = _BrokerQueue(info, self._connect(info), self._lease)
                task = self._tasks.spawn(f"broker {broker_id}", queue.run(self._listener))
                self._queues[broker_id] = queue, task

    def send(self, requests: Iterable[tuple[BrokerId, ControlRequest]]) -> None:
        for broker_id, request in requests:
            found = self._queues.get(broker_id)
            if found is not None:
                found[0].put(request)

    def when_applied(self, broker_id: BrokerId, callback: Callable[[], None]) -> None:
        """Once this broker has answered all that it was sent so far; at once if it is not registered."""
        found = self._queues.get(broker_id)
        if found is None:
            callback()
        else:
            found[0].when_empty_so_far(callback)

    def size(self, broker_id: BrokerId) -> int:
        found = self._queues.get(broker_id)
        return 0 if found is None else len(found[0])

    def sizes(self) -> dict[BrokerId, int]:
        return {broker_id: len(queue) for broker_id, (queue, _) in self._queues.items()}

    def unreachable_s(self) -> dict[BrokerId, float]:
        """For how long each broker has not been reached; 0 for those that are."""
        found: dict[BrokerId, float] = {}
        for broker_id, (queue, _) in self._queues.items():
            since = queue.unreachable_since
            found[broker_id] = 0.0 if since is None else asyncio.get_running_loop().time() - since
        return found

    def drop(self) -> None:
        for broker_id in list(self._queues):
            self._drop(broker_id)

    def _drop(self, broker_id: BrokerId) -> None:
        queue, task = self._queues.pop(broker_id)
        task.cancel()
        queue.release()
        self._close(queue)

    def _close(self, queue: _BrokerQueue) -> None:
        self._tasks.spawn(f"closing the channel to broker {queue.broker.id}", queue.channel.close())

    async def close(self) -> None:
        self.drop()
        await asyncio.sleep(0)
        await self._tasks.close()
