"""The transaction of a producer: InitProducerId, AddOffsetsToTxn, EndTxn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.coordinators.early_requests import EarlyRequests
from braidlog.broker.coordinators.transaction_markers import error_code_for_version
from braidlog.cluster.producer_id_manager import ProducerIdManager
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import ClusterAuthorizationFailedError, InvalidRequestError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.security.acls import CLUSTER_RESOURCE, AclOperation, AclResourceType
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from braidlog.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.message import Message

if TYPE_CHECKING:
    from braidlog.coordinator.group.shard import GroupCoordinatorShard
    from braidlog.coordinator.txn.shard import TransactionCoordinatorShard

# The first version that knows PRODUCER_FENCED.
_INIT_FENCED_FROM: Final = 4
_FENCED_FROM: Final = 2
_MOVES_EPOCH_FROM: Final = 5


class InitProducerIdHandler:
    """InitProducerId (api 22): a producer's id and epoch; those of a transactional id come from its coordinator.

    v3   a producer that recovers says which id and epoch it had (KIP-360)
    v4   PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH                v6   fields of KIP-939, which is not served
    """

    def __init__(
        self,
        producer_ids: ProducerIdManager,
        transactions: CoordinatorRuntime[TransactionCoordinatorShard],
        authorizer: Authorizer,
    ) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._authorizer = authorizer

    async def handle(self, request: InitProducerIdRequest, exchange: Exchange) -> Message:
        transactional_id = request.transactional_id
        self._check(transactional_id, exchange)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise InvalidRequestError("a producer id goes with an epoch")
        if transactional_id is None:
            return InitProducerIdResponse(producer_id=await self._producer_ids.next_id(), producer_epoch=0)
        # The coordinator may need a fresh id, and cannot wait for one.
        await self._producer_ids.reserve()
        return await self._transactions.ask(
            transactional_id, lambda shard, responder, now: shard.init_producer_id(request, responder, now)
        )

    def _check(self, transactional_id: str | None, exchange: Exchange) -> None:
        authorizer, write = self._authorizer, AclOperation.WRITE
        if transactional_id is not None:
            authorizer.check(exchange, write, AclResourceType.TRANSACTIONAL_ID, transactional_id)
            return
        # Who may write to some topic may do so with idempotence (KIP-679).
        idempotent = AclOperation.IDEMPOTENT_WRITE
        if authorizer.authorize(exchange, idempotent, *CLUSTER_RESOURCE, log_if_denied=False):
            return
        if not authorizer.authorize_by_resource_type(exchange, write, AclResourceType.TOPIC):
            raise ClusterAuthorizationFailedError("not allowed to write to any topic")

    @staticmethod
    def error_response(request: InitProducerIdRequest, version: int, error: ProtocolError) -> InitProducerIdResponse:
        code = error_code_for_version(error, version, _INIT_FENCED_FROM)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


class AddOffsetsToTxnHandler:
    """AddOffsetsToTxn (api 25): the partition that keeps a group's offsets joins a transaction.

    v2   PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH
    """

    def __init__(
        self,
        early_requests: EarlyRequests,
        groups: CoordinatorRuntime[GroupCoordinatorShard],
        authorizer: Authorizer,
    ) -> None:
        self._early_requests = early_requests
        self._groups = groups
        self._authorizer = authorizer

    def handle(self, request: AddOffsetsToTxnRequest, exchange: Exchange) -> None:
        check = self._authorizer.check
        check(exchange, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id)
        check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        offsets = self._groups.partition_of(request.group_id)
        self._early_requests.submit(
            request.transactional_id,
            exchange,
            lambda shard, responder, now: shard.add_offsets(request, offsets, responder, now),
        )

    @staticmethod
    def error_response(request: AddOffsetsToTxnRequest, version: int, error: ProtocolError) -> AddOffsetsToTxnResponse:
        code = error_code_for_version(error, version, _FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=code)


class EndTxnHandler:
    """EndTxn (api 26): commit or abort.

    v2   PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH
    v5   each end moves the epoch, and tells the producer its next id and epoch (KIP-890)
    """

    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], authorizer: Authorizer) -> None:
        self._transactions = transactions
        self._authorizer = authorizer

    def handle(self, request: EndTxnRequest, exchange: Exchange) -> None:
        named = request.transactional_id
        self._authorizer.check(exchange, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, named)
        bumps_epoch = exchange.version >= _MOVES_EPOCH_FROM
        self._transactions.submit(
            request.transactional_id, exchange, lambda shard, now: shard.end_txn(request, bumps_epoch, exchange, now)
        )

    @staticmethod
    def error_response(request: EndTxnRequest, version: int, error: ProtocolError) -> EndTxnResponse:
        code = error_code_for_version(error, version, _FENCED_FROM)
        return EndTxnResponse(error_code=code)
