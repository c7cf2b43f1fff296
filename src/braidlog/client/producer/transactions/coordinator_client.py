"""Talks to the coordinators of a transaction and of its groups, until an answer says something definite.

Every call here goes on for as long as it takes: connections that break, coordinators that move or load are tried
again after a pause. What ends it is success, an AbortableError, a ProducerFailedError, or its cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Final, NamedTuple, Protocol, TypeVar

from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import (
    AbortableError,
    AuthenticationFailed,
    ClientError,
    ClosedError,
    NoConnection,
    ProducerFailedError,
)
from braidlog.client.network.lookups import COORDINATOR_CONNECTION, RequestConnection, find_coordinators
from braidlog.client.problem_log import ProblemLog
from braidlog.client.producer.transactions import error_policies as error_policies
from braidlog.client.producer.transactions import requests as requests
from braidlog.client.producer.transactions.error_policies import ErrorAction, ErrorPolicy, error_for_code, fatal_error
from braidlog.client.producer.transactions.requests import ProducerIdAndEpoch
from braidlog.client.requests.find_coordinator import GROUP, TRANSACTION, CoordinatorType
from braidlog.client.requests.init_producer_id import INIT_PRODUCER_ID, init_producer_id_request
from braidlog.client.settings import Settings
from braidlog.core.protocol_errors import NONE, ProtocolError, name_of
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.connector import Address
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnResponse
from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnResponse
from braidlog.wire.generated.end_txn import EndTxnResponse
from braidlog.wire.generated.init_producer_id import InitProducerIdResponse
from braidlog.wire.generated.txn_offset_commit import TxnOffsetCommitResponse
from braidlog.wire.message import Message

Response = TypeVar("Response", bound=Message)
Answer = TypeVar("Answer")

# The transaction before is ended within milliseconds, as a rule.
_SOON_S: Final = 0.02
# A coordinator may have to be asked a thousand times, and a float ends at 2 ** 1024.
_MOST_DOUBLINGS: Final = 30
_JITTER: Final = 0.2


class CoordinatorConnection(RequestConnection, Protocol):
    """What is used of a connection to a broker."""

    @property
    def features(self) -> Mapping[str, int]: ...


class CoordinatorConnections(Protocol):
    """What is used of `Nodes`."""

    request_timeout_s: float
    problems: ProblemLog

    async def any(self) -> CoordinatorConnection: ...

    async def connection(self, node_id: int, purpose: str = "") -> CoordinatorConnection: ...

    def learn_one(self, node_id: int, address: Address) -> None: ...


class EpochBumpRequired(Exception):
    """Only a new epoch helps; `error` is what the program gets to see."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        self.error = error


class _NotFoundYet(ClientError):
    """The cluster has no coordinator for the name at the moment."""

    retriable = True


class _Key(NamedTuple):
    name: str
    kind: CoordinatorType


class TransactionCoordinatorClient:
    """Used on the engine's thread only."""

    def __init__(
        self,
        transactional_id: str,
        connections: CoordinatorConnections,
        *,
        timeout_ms: int,
        pauses_s: tuple[float, float],
        random: Random | None = None,
    ) -> None:
        self._transactional_id = transactional_id
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._pauses_s = pauses_s
        self._random = random or Random()
        self._subject = f"transactional id {transactional_id}"
        self._own = _Key(transactional_id, TRANSACTION)
        self._nodes: dict[_Key, int] = {}
        # Why the last attempt had to be repeated, for who is tired of waiting.
        self.last_problem = ""
        # transaction.version 2: partitions and offsets need no request of their own, and each end moves the epoch.
        self.is_implicit = False
        self._version = 0
        # Whether the coordinator can give the next epoch of an id.
        self.can_renew = True

    @classmethod
    def of(
        cls,
        settings: Settings,
        connections: CoordinatorConnections,
        random: Random | None = None,
    ) -> TransactionCoordinatorClient:
        return cls(
            settings.text("transactional.id"),
            connections,
            timeout_ms=settings.number("transaction.timeout.ms"),
            pauses_s=(settings.seconds("retry.backoff.ms"), settings.seconds("retry.backoff.max.ms")),
            random=random,
        )

    async def initialise(self, known: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """An id and epoch that fence the earlier producer of the transactional id; with `known`, its next epoch."""
        request = init_producer_id_request(
            self._transactional_id, self._timeout_ms, producer_id=known.producer_id, producer_epoch=known.epoch
        )
        response = await self._retry_until_definite(
            "init_transactions",
            self._own,
            error_policies.INITIALISING,
            lambda connection: self._call(
                connection, INIT_PRODUCER_ID, request, InitProducerIdResponse, requests.NEWEST_INIT
            ),
            lambda answer: [answer.error_code],
        )
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def add_partitions(
        self, identity: ProducerIdAndEpoch, partitions: Mapping[TopicPartition, None], wanted: Callable[[], bool]
    ) -> bool:
        """Whether they are in the transaction; not, if they were no longer wanted."""
        request = requests.add_partitions(self._transactional_id, identity, partitions)
        at_most = requests.NEWEST_ADD_PARTITIONS
        response = await self._retry_until_definite(
            "adding partitions to the transaction",
            self._own,
            error_policies.ADDING_PARTITIONS,
            lambda connection: self._call(
                connection, requests.ADD_PARTITIONS_TO_TXN, request, AddPartitionsToTxnResponse, at_most
            ),
            requests.added,
            wanted,
        )
        return all(code == NONE for code in requests.added(response))

    async def add_group(self, identity: ProducerIdAndEpoch, group: str, wanted: Callable[[], bool]) -> bool:
        """Make a group's offsets part of the transaction; not, if that was no longer wanted."""
        request = requests.add_offsets(self._transactional_id, identity, group)
        response = await self._retry_until_definite(
            f"adding offsets of group {group} to the transaction",
            self._own,
            error_policies.ADDING_OFFSETS,
            lambda connection: self._call(connection, requests.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse),
            lambda answer: [answer.error_code],
            wanted,
        )
        return response.error_code == NONE

    async def commit_offsets(
        self,
        identity: ProducerIdAndEpoch,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        wanted: Callable[[], bool],
    ) -> None:
        """Tell the group's coordinator, who keeps them until the transaction ends."""
        request = requests.commit_offsets(self._transactional_id, identity, group, offsets)
        at_most = None if self.is_implicit else requests.EXPLICIT_OFFSET_COMMIT
        await self._retry_until_definite(
            f"sending offsets of group {group.group_id} to the transaction",
            _Key(group.group_id, GROUP),
            error_policies.COMMITTING_OFFSETS,
            lambda connection: self._call(
                connection, requests.TXN_OFFSET_COMMIT, request, TxnOffsetCommitResponse, at_most
            ),
            requests.offsets_taken,
            wanted,
        )

    async def end(self, identity: ProducerIdAndEpoch, commit: bool) -> ProducerIdAndEpoch:
        """Commit or abort; the identity to go on with."""
        request = requests.end(self._transactional_id, identity, commit)
        at_most = None if self.is_implicit else requests.EXPLICIT_END
        response = await self._retry_until_definite(
            "commit_transaction" if commit else "abort_transaction",
            self._own,
            error_policies.ENDING,
            lambda connection: self._call(connection, requests.END_TXN, request, EndTxnResponse, at_most),
            lambda answer: [answer.error_code],
        )
        return (
            identity if response.producer_id < 0 else ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        )

    def settle_version(self) -> None:
        """Go by what the coordinator said last; between transactions only, since one has to end as it began."""
        self.is_implicit = self._version >= requests.IMPLICIT

    # Asking until something definite is known

    async def _retry_until_definite(
        self,
        doing: str,
        key: _Key,
        judgement: ErrorPolicy,
        ask: Callable[[CoordinatorConnection], Awaitable[Answer]],
        codes_of: Callable[[Answer], Iterable[int]],
        wanted: Callable[[], bool] | None = None,
    ) -> Answer:
        """`wanted` ends it after an answer that says nothing was done; a lost answer says nothing of the kind."""
        failures = 0
        while True:
            pause_s = self._pause_s(failures)
            failures += 1
            try:
                answer = await ask(await self._connection_to(key))
            except (ClosedError, AuthenticationFailed) as problem:
                raise self._failed(doing, problem) from problem
            except ClientError as problem:
                if isinstance(problem, (AbortableError, ProducerFailedError)):
                    raise
                if not problem.retriable:
                    raise self._failed(doing, problem) from problem
                self._nodes.pop(key, None)
                self._note(doing, str(problem))
            except ProtocolError as problem:
                # The request cannot be said in the versions that the broker offers.
                raise self._failed(doing, problem) from problem
            else:
                verdict, code = _most_severe(judgement, codes_of(answer))
                if verdict is ErrorAction.DONE:
                    self.last_problem = ""
                    self._connections.problems.recovered(self._subject)
                    return answer
                self._raise_if_lasting(doing, verdict, code)
                if wanted is not None and not wanted():
                    return answer
                if verdict is ErrorAction.ELSEWHERE:
                    self._nodes.pop(key, None)
                elif verdict is ErrorAction.SOON:
                    pause_s = min(pause_s, _SOON_S)
                self._note(doing, name_of(code))
            await asyncio.sleep(pause_s)

    def _raise_if_lasting(self, doing: str, verdict: ErrorAction, code: int) -> None:
        if verdict is ErrorAction.FATAL:
            raise error_for_code(self._transactional_id, doing, code, fatal=True)
        if verdict is ErrorAction.ABORTABLE:
            raise error_for_code(self._transactional_id, doing, code, fatal=False)
        if verdict is ErrorAction.RENEW:
            if not self.can_renew:
                raise error_for_code(self._transactional_id, doing, code, fatal=True)
            raise EpochBumpRequired(error_for_code(self._transactional_id, doing, code, fatal=False))

    async def _connection_to(self, key: _Key) -> CoordinatorConnection:
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = await self._find(key)
        connection = await self._connected(node)
        if key == self._own:
            self.can_renew = connection.version_for(INIT_PRODUCER_ID) >= requests.RENEWING_INIT
            self._version = connection.features.get(requests.TRANSACTION_VERSION, 0)
        return connection

    async def _connected(self, node: int | None) -> CoordinatorConnection:
        """A connection to that broker, or to any."""
        try:
            return await (
                self._connections.any() if node is None else self._connections.connection(node, COORDINATOR_CONNECTION)
            )
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not we were cancelled but the connecting: the cluster's addresses changed meanwhile.
            raise NoConnection("the connection was given up while it was being made") from None

    async def _find(self, key: _Key) -> int:
        connection = await self._connected(None)
        (place,) = await find_coordinators(connection, key.kind, [key.name], self._connections.request_timeout_s)
        verdict = error_policies.FINDING.of(place.error_code)
        if verdict is not ErrorAction.DONE:
            self._raise_if_lasting(f"finding the coordinator of {key.name}", verdict, place.error_code)
            raise _NotFoundYet(f"no coordinator of {key.name} yet ({name_of(place.error_code)})")
        self._connections.learn_one(place.node_id, (place.host, place.port))
        return place.node_id

    async def _call(
        self,
        connection: CoordinatorConnection,
        api_key: int,
        request: Message,
        answer: type[Response],
        at_most: int | None = None,
    ) -> Response:
        return await connection.call(
            api_key, request, answer, at_most=at_most, timeout_s=self._connections.request_timeout_s
        )

    def _failed(self, doing: str, problem: Exception) -> ClientError:
        return fatal_error(self._transactional_id, f"{doing} is not possible ({problem})")

    def _note(self, doing: str, problem: str) -> None:
        self.last_problem = problem
        self._connections.problems.failed(self._subject, f"{doing} ({problem})")

    def _pause_s(self, failures: int) -> float:
        first, longest = self._pauses_s
        pause = min(first * 2.0 ** min(failures, _MOST_DOUBLINGS), longest)
        return float(pause * self._random.uniform(1 - _JITTER, 1 + _JITTER))


def _most_severe(judgement: ErrorPolicy, codes: Iterable[int]) -> tuple[ErrorAction, int]:
    """Of the parts of an answer, the one that decides."""
    worst, code = ErrorAction.DONE, NONE
    for each in codes:
        verdict = judgement.of(each)
        if verdict.value > worst.value:
            worst, code = verdict, each
    return worst, code
