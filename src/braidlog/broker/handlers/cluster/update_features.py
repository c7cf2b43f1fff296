"""UpdateFeatures (api 57): change the finalised levels of features (KIP-584); the controller alone does it.

v0   a downgrade has to be allowed    v1   kinds of downgrades; may only check    v2   all or none

    upgrade                      write the levels
    downgrade   refuse           groups have members of the newer protocol (unless that is unsafe and wanted)
                write            the levels, and `braidlog.downgrade`, which still keeps Kafka out
                wait             brokers see it, write groups anew as classic ones; open transactions end
                write            the levels alone

Each step may be the last that this controller does. Whoever asks again, of whichever controller, goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.coordinators.coordinators import Coordinators
from braidlog.cluster import paths, records
from braidlog.cluster.features import GROUP_VERSION, TRANSACTION_VERSION
from braidlog.cluster.image import BrokerInfo, ClusterImage
from braidlog.cluster.records import FeaturesRecord
from braidlog.cluster.store import (
    CoordinationStore,
    NoNodeError,
    SessionExpiredError,
    StoreConnectionError,
    StoreFailedError,
)
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.controller.active_controller import as_protocol_error
from braidlog.controller.controller import Controller
from braidlog.controller.features import FeatureDecision, FeatureUpdate, UpgradeType, decide
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import (
    NONE,
    FeatureUpdateFailedError,
    NotControllerError,
    ProtocolError,
    from_code,
)
from braidlog.core.types import NO_BROKER, BrokerId
from braidlog.net.exchange import Exchange
from braidlog.net.outbound.errors import ClientError
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from braidlog.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from braidlog.wire.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from braidlog.broker.interbroker.network import InterBrokerNetwork

_POLL_S: Final = 0.2
# How long a downgrade may take at least, whatever the client says, and at most.
_SHORTEST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 600.0
# The answer has to be there before the client gives up.
_OF_TIMEOUT: Final = 0.8
# A broker that does not answer within this is one that stands in the way.
_ANSWER_S: Final = 10.0
_NAMED: Final = 5
# Of the newer protocol, as ListGroups calls it.
_CONSUMER: Final = "consumer"
_EMPTY: Final = "Empty"
_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
# Transactions that only this long are open count as begun after the change.
_ALL: Final = -1


_KINDS_FROM: Final = 1
_ALL_OR_NONE_FROM: Final = 2


class UpdateFeaturesHandler:
    def __init__(self, updates: FeatureUpdates, authorizer: Authorizer) -> None:
        self._updates = updates
        self._authorizer = authorizer

    async def handle(self, request: UpdateFeaturesRequest, exchange: Exchange) -> UpdateFeaturesResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
        version = exchange.version
        results = await self._updates.update(
            [
                FeatureUpdate(each.feature, each.max_version_level, _kind(each, version))
                for each in request.feature_updates
            ],
            validate_only=request.validate_only,
            all_or_none=version >= _ALL_OR_NONE_FROM,
            timeout_ms=request.timeout_ms,
        )
        response = UpdateFeaturesResponse(error_message=None)
        if version < _ALL_OR_NONE_FROM:
            response.results = [_result(name, error) for name, error in results.items()]
        return response

    @staticmethod
    def error_response(request: UpdateFeaturesRequest, version: int, error: ProtocolError) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


def _kind(update: FeatureUpdateKey, version: int) -> int:
    if version >= _KINDS_FROM:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def _result(name: str, error: ProtocolError | None) -> UpdatableFeatureResult:
    if error is None:
        return UpdatableFeatureResult(feature=name, error_code=NONE, error_message=None)
    return UpdatableFeatureResult(feature=name, error_code=error.code, error_message=error.message)


class InUse(NamedTuple):
    """What the coordinators of a cluster hold of the newer protocols."""

    # Groups of the newer protocol, by id with their state.
    groups: Mapping[str, str] = {}
    open_transactions: Sequence[str] = ()
    # Why some are not known.
    unknown: Sequence[str] = ()

    def add(self, other: InUse) -> InUse:
        return InUse(
            {**self.groups, **other.groups},
            [*self.open_transactions, *other.open_transactions],
            [*self.unknown, *other.unknown],
        )


class Survey(Protocol):
    async def look(self, open_for_ms: int) -> InUse:
        """On all brokers; of transactions those that are open for longer, all with -1."""
        ...


class FeatureUpdates:
    def __init__(self, controller: Controller, store: CoordinationStore, survey: Survey, clock: Clock) -> None:
        self._controller = controller
        self._store = store
        self._survey = survey
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def update(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool, all_or_none: bool, timeout_ms: int
    ) -> Mapping[str, ProtocolError | None]:
        """By feature what is wrong with its update; raises ProtocolError where nothing was changed, or not all yet."""
        if not self._controller.active:
            raise NotControllerError("this broker is not the controller")
        wait_s = min(max(timeout_ms / 1000 * _OF_TIMEOUT, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
        deadline = self._clock.monotonic() + wait_s
        try:
            async with asyncio.timeout(wait_s):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            raise FeatureUpdateFailedError("another update of features is under way; ask again") from None
        try:
            return await self._update(updates, validate_only, all_or_none, deadline)
        except (StoreConnectionError, SessionExpiredError, StoreFailedError) as problem:
            raise as_protocol_error(problem) from problem
        finally:
            self._one_at_a_time.release()

    async def _update(
        self, updates: Sequence[FeatureUpdate], validate_only: bool, all_or_none: bool, deadline: float
    ) -> Mapping[str, ProtocolError | None]:
        # A broker of Kafka may have come in this moment.
        await self._controller.read_brokers()
        record, version = await self._read()
        decision = decide(record.levels, updates, self._controller.image.brokers)
        error = decision.first_error
        if all_or_none and error is not None:
            raise error
        if decision.is_downgrade and decision.is_safe:
            await self._refuse_members(decision)
        if not validate_only:
            await self._write(decision, record, version, deadline)
        return decision.errors

    async def _read(self) -> tuple[FeaturesRecord, int | None]:
        try:
            node = await self._store.get(paths.FEATURE)
        except NoNodeError:
            return FeaturesRecord(True, {}), None
        return records.decode_features(paths.FEATURE, node.data), node.stat.version

    async def _refuse_members(self, decision: FeatureDecision) -> None:
        in_use = await self._survey.look(_ALL)
        if in_use.unknown:
            raise FeatureUpdateFailedError(f"not all coordinators can be asked: {in_use.unknown[0]}; ask again later")
        if decision.levels.get(GROUP_VERSION, 0) > 0:
            return
        with_members = sorted(group for group, state in in_use.groups.items() if state != _EMPTY)
        if with_members:
            raise FeatureUpdateFailedError(
                f"{_named('group', with_members)} with members of the newer protocol: restart these with "
                "group.protocol=classic, or ask for an unsafe downgrade (--unsafe), which puts them out and keeps "
                "their offsets"
            )

    async def _write(
        self, decision: FeatureDecision, record: FeaturesRecord, version: int | None, deadline: float
    ) -> None:
        wanted = record._replace(enabled=True, levels=decision.levels)
        if decision.is_downgrade:
            under_way = record._replace(enabled=True, levels=decision.under_way())
            if record != under_way:
                version = await self._finalise(under_way, version)
            await self._wait_until_unused(decision, deadline)
            await self._finalise(wanted, version)
        elif record != wanted:
            await self._finalise(wanted, version)

    async def _finalise(self, record: FeaturesRecord, version: int | None) -> int:
        """The version of the node that says so."""
        await self._controller.write_features(records.encode_features(record), version)
        return 0 if version is None else version + 1

    async def _wait_until_unused(self, decision: FeatureDecision, deadline: float) -> None:
        began = self._clock.monotonic()
        while True:
            since_ms = int((self._clock.monotonic() - began) * 1000)
            in_the_way = _left(decision, await self._survey.look(since_ms))
            if not in_the_way:
                return
            if self._clock.monotonic() >= deadline:
                raise FeatureUpdateFailedError(
                    f"the downgrade is not finished: {in_the_way}. The features are off, and brokers of Kafka still "
                    "kept out; ask again to go on"
                )
            await asyncio.sleep(_POLL_S)


def _left(decision: FeatureDecision, in_use: InUse) -> str:
    """What still keeps the downgrade from its end, empty if nothing does."""
    if in_use.unknown:
        return in_use.unknown[0]
    if in_use.groups and decision.levels.get(GROUP_VERSION, 0) == 0:
        return f"{_named('group', sorted(in_use.groups))} still of the newer protocol"
    if in_use.open_transactions and decision.levels.get(TRANSACTION_VERSION, 0) < 2:
        return (
            f"{_named('transaction', sorted(in_use.open_transactions))} open since before: wait for the end, abort "
            "(braidlog transactions abort ID), or ask for an unsafe downgrade (--unsafe)"
        )
    return ""


def _named(what: str, names: Sequence[str]) -> str:
    """As 'groups a, b and 3 more are'."""
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{what} {shown} is" if len(names) == 1 else f"{what}s {shown}{more} are"


class CoordinatorSurvey:
    """Asks this broker's coordinators by calls, those of others by ListGroups and ListTransactions."""

    def __init__(
        self,
        broker_id: BrokerId,
        coordinators: Coordinators,
        image: Callable[[], ClusterImage],
        network: InterBrokerNetwork | None,
    ) -> None:
        self._broker_id = broker_id
        self._coordinators = coordinators
        self._image = image
        self._network = network

    async def look(self, open_for_ms: int) -> InUse:
        groups = ListGroupsRequest(types_filter=[_CONSUMER])
        transactions = ListTransactionsRequest(state_filters=list(_OPEN_STATES), duration_filter=open_for_ms)
        image = self._image()
        found = InUse(unknown=_leaderless(image))
        for broker in image.brokers.values():
            if broker.id == self._broker_id:
                found = found.add(await self._look_here(groups, transactions))
            else:
                found = found.add(await self._ask(broker, groups, transactions))
        return found

    async def _look_here(self, groups: ListGroupsRequest, transactions: ListTransactionsRequest) -> InUse:
        group_runtime, transaction_runtime = self._coordinators.groups, self._coordinators.transactions
        if group_runtime.loading_partitions() or transaction_runtime.loading_partitions():
            return InUse(unknown=[f"broker {self._broker_id} is loading its coordinators"])
        listed: dict[str, str] = {}
        is_open: list[str] = []
        try:
            for partition in group_runtime.active_partitions():
                some = await group_runtime.ask(partition, lambda shard, to, now: shard.list_groups(groups, to, now))
                assert isinstance(some, ListGroupsResponse)
                listed.update((each.group_id, each.group_state) for each in some.groups)
            for partition in transaction_runtime.active_partitions():
                states = await transaction_runtime.ask(
                    partition, lambda shard, to, now: shard.list_transactions(transactions, None, to, now)
                )
                assert isinstance(states, ListTransactionsResponse)
                is_open += [each.transactional_id for each in states.transaction_states]
        except ProtocolError as moved:
            return InUse(unknown=[f"a coordinator of broker {self._broker_id} does not answer: {moved}"])
        return InUse(listed, is_open)

    async def _ask(self, broker: BrokerInfo, groups: ListGroupsRequest, transactions: ListTransactionsRequest) -> InUse:
        assert self._network is not None, "a broker that is alone knows no other"
        link = self._network.connect(broker, "features")
        try:
            async with asyncio.timeout(_ANSWER_S):
                connection = await link.get()
            listed = await connection.call(ApiKey.LIST_GROUPS, groups, ListGroupsResponse, timeout_s=_ANSWER_S)
            states = await connection.call(
                ApiKey.LIST_TRANSACTIONS, transactions, ListTransactionsResponse, timeout_s=_ANSWER_S
            )
        except (TimeoutError, ClientError, ProtocolError) as problem:
            return InUse(unknown=[f"broker {broker.id} does not answer: {problem}"])
        finally:
            link.close()
        for code in (listed.error_code, states.error_code):
            if code != NONE:
                return InUse(unknown=[f"broker {broker.id} cannot tell: {from_code(code)}"])
        return InUse(
            {each.group_id: each.group_state for each in listed.groups},
            [each.transactional_id for each in states.transaction_states],
        )


def _leaderless(image: ClusterImage) -> list[str]:
    """Coordinators that nobody can ask, since no broker leads their partition."""
    topics = (image.topic(name) for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
    return [
        f"{topic.name}-{index} has no leader; start its brokers first"
        for topic in topics
        if topic is not None
        for index, partition in enumerate(topic.partitions)
        if partition.leader == NO_BROKER
    ]
