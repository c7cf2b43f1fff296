"""Rules follow the store, and are written to it: several brokers on an embedded one in memory."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from braidlog.broker.authorization.acl_records import acl_change, encode_acls
from braidlog.broker.authorization.acl_store import AclStore, denies_everybody
from braidlog.broker.authorization.audit_log import AuditLog
from braidlog.broker.authorization.authorizer import AclAuthorizer
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.store import (
    CoordinationStore,
    Operation,
    Outcome,
    RequestTooLargeError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import InvalidRequestError, RequestTimedOutError
from braidlog.core.tasks import Tasks
from braidlog.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    AclRules,
    PatternType,
    Resource,
)
from support.in_process_server import until
from support.memory_journal import MemoryJournalFiles

READ = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
WRITE = READ._replace(operation=AclOperation.WRITE)
PREFIX = READ._replace(resource_name="or", pattern_type=PatternType.PREFIXED)
GROUP = Acl(AclResourceType.GROUP, "shop", "User:ann", AclOperation.READ)
ORDERS = AclFilter(AclResourceType.TOPIC, "orders", pattern_type=PatternType.LITERAL)
ROOT = "User:root"


class Broker:
    def __init__(self, session: CoordinationStore, clock: ManualClock, tasks: Tasks) -> None:
        self.authorizer = AclAuthorizer(AclRules((), frozenset({ROOT})), AuditLog(lambda delay, call: None))
        self.store = AclStore(session, self.authorizer, clock, tasks)

    @property
    def acls(self) -> list[Acl]:
        return self.authorizer.rules.acls

    def may(self, operation: AclOperation, name: str = "orders", who: str = "User:ann") -> bool:
        return self.authorizer.rules.decide(who, "h", operation, Resource(AclResourceType.TOPIC, name)).allowed


class World:
    def __init__(self, store: EmbeddedStore, clock: ManualClock, tasks: Tasks) -> None:
        self.store = store
        self.clock = clock
        self.tasks = tasks
        self.session: CoordinationStore = store.connect()

    async def broker(self, session: CoordinationStore | None = None) -> Broker:
        made = Broker(session or self.store.connect(), self.clock, self.tasks)
        await made.store.start()
        return made


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    store = EmbeddedStore.open(MemoryJournalFiles(), clock)
    tasks = Tasks("test")
    yield World(store, clock, tasks)
    await tasks.close()
    await store.close()


class LosingStore:
    """A session whose next changes are lost, or whose next answers are."""

    def __init__(self, session: CoordinationStore) -> None:
        self._session = session
        self.problems: list[Exception] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        if not self.problems:
            return await self._session.multi(operations)
        problem = self.problems.pop(0)
        if isinstance(problem, UnknownOutcomeError):
            await self._session.multi(operations)
        raise problem


async def test_the_life_of_rules_on_two_brokers() -> None:
    async with world() as w:
        one, two = await w.broker(), await w.broker()
        assert not one.may(AclOperation.READ)
        assert await one.store.create([READ, GROUP, PREFIX, READ]) == [None] * 4
        # At once here, and by its watch there.
        assert one.acls == sorted([READ, GROUP, PREFIX])
        assert one.may(AclOperation.READ)
        await until(lambda: two.acls == one.acls)
        assert await two.store.create([WRITE]) == [None]
        # The first filter that fits has it.
        found = await one.store.delete([ORDERS._replace(operation=AclOperation.WRITE), ORDERS, AclFilter(host="x")])
        assert found == [{WRITE: None}, {READ: None}, {}]
        assert one.acls == sorted([GROUP, PREFIX])
        await until(lambda: two.acls == one.acls)
        assert await one.store.delete([AclFilter()]) == [{GROUP: None, PREFIX: None}]
        assert not one.may(AclOperation.READ)
        assert await w.session.children("/kafka-acl/Topic") == []
        assert one.store.rules.find(AclFilter()) == []


async def test_what_lies_in_the_store_is_kafkas() -> None:
    async with world() as w:
        broker = await w.broker()
        await broker.store.create([READ, PREFIX])
        node = await w.session.get("/kafka-acl/Topic/orders")
        entry = {"principal": "User:ann", "permissionType": "Allow", "operation": "Read", "host": "*"}
        assert json.loads(node.data) == {"version": 1, "acls": [entry]}
        assert await w.session.children("/kafka-acl-extended/prefixed/Topic") == ["or"]
        assert await w.session.children("/kafka-acl-changes") == ["acl_changes_0000000000"]
        assert (await w.session.get("/kafka-acl-changes/acl_changes_0000000000")).data == b"TOPIC:orders"
        assert await w.session.children("/kafka-acl-extended-changes") == ["acl_changes_0000000000"]
        assert set(await w.session.children("/kafka-acl")) == {
            "Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User",
        }  # fmt: skip
        # What is there already is not written again.
        await broker.store.create([READ])
        assert (await w.session.get("/kafka-acl/Topic/orders")).stat.version == node.stat.version


async def test_rules_of_others_are_followed() -> None:
    """Written as another broker does it, before the start and after."""
    async with world() as w:
        first = await w.broker()
        await first.store.create([READ])
        broker = await w.broker()
        assert broker.acls == [READ]
        await w.session.set("/kafka-acl/Topic/orders", encode_acls([WRITE]))
        await w.session.multi([acl_change(READ.pattern)])
        await until(lambda: broker.acls == [WRITE])
        await w.session.delete("/kafka-acl/Topic/orders")
        await w.session.multi([acl_change(READ.pattern)])
        await until(lambda: broker.acls == [])


async def test_what_is_read_again_as_it_was_changes_nothing() -> None:
    async with world() as w:
        broker = await w.broker()
        await broker.store.create([READ, GROUP])
        rules = broker.store.rules
        await w.session.multi([acl_change(READ.pattern)])
        await broker.store.catch_up()
        for each in broker.store.listeners:
            await each.start()
        assert broker.store.rules is rules


async def test_a_new_session_reads_everything() -> None:
    async with world() as w:
        broker = await w.broker()
        await broker.store.create([READ, GROUP])
        # Without a notification, as if it had been purged.
        await w.session.delete("/kafka-acl/Group/shop")
        await w.session.set("/kafka-acl/Topic/orders", encode_acls([WRITE]))
        for each in broker.store.listeners:
            each.session_lost()
            await each.session_opened(w.store.connect())
        assert broker.acls == [WRITE]


async def test_both_write_the_same_rules_at_once() -> None:
    async with world() as w:
        brokers = [await w.broker() for _ in range(4)]
        rules = [READ._replace(principal=f"User:{number}") for number in range(40)]
        results = await asyncio.gather(*(brokers[number % 4].store.create([rule]) for number, rule in enumerate(rules)))
        assert results == [[None]] * 40
        for broker in brokers:
            await broker.store.catch_up()
            assert broker.acls == sorted(rules)


async def test_an_answer_that_was_lost_is_looked_up() -> None:
    async with world() as w:
        session = LosingStore(w.store.connect())
        broker = await w.broker(session)  # type: ignore[arg-type]
        session.problems = [UnknownOutcomeError("lost")]
        assert await broker.store.create([READ]) == [None]
        session.problems = [UnknownOutcomeError("lost")]
        assert await broker.store.delete([AclFilter()]) == [{READ: None}]
        assert broker.acls == []


async def test_a_failure_is_told_of_what_failed_alone() -> None:
    async with world() as w:
        session = LosingStore(w.store.connect())
        broker = await w.broker(session)  # type: ignore[arg-type]
        session.problems = [StoreUnavailableError("away")]
        first, second = await broker.store.create([READ, GROUP])
        assert isinstance(first, RequestTimedOutError)
        assert second is None
        assert broker.acls == [GROUP]
        session.problems = [StoreUnavailableError("away")]
        ((_, error),) = (await broker.store.delete([AclFilter()]))[0].items()
        assert isinstance(error, RequestTimedOutError)
        assert broker.acls == [GROUP]


async def test_rules_that_cannot_be_read_deny(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with world() as w:
        broker = await w.broker()
        everyone = READ._replace(resource_name="*")
        await broker.store.create([READ, everyone])
        await w.session.set("/kafka-acl/Topic/orders", b'{"version":1,"acls":[')
        await w.session.multi([acl_change(READ.pattern)])
        await broker.store.catch_up()
        for each in (broker, await w.broker()):
            assert not each.may(AclOperation.READ)
            assert each.may(AclOperation.READ, who=ROOT)
            # Only this one.
            assert each.may(AclOperation.READ, "payments")
        assert "only super users may use topic 'orders'" in caplog.text
        assert "/kafka-acl/Topic/orders: not JSON" in caplog.text
        assert "braidlog acls remove" in caplog.text
        # It is seen, nothing is added to it, and removing it mends it.
        assert broker.store.rules.find(ORDERS) == [denies_everybody(READ.pattern)]
        (refused,) = await broker.store.create([WRITE])
        assert isinstance(refused, InvalidRequestError)
        assert (await w.session.get("/kafka-acl/Topic/orders")).data == b'{"version":1,"acls":['
        assert await broker.store.delete([ORDERS]) == [{denies_everybody(READ.pattern): None}]
        assert await broker.store.create([WRITE]) == [None]
        assert broker.acls == sorted([everyone, WRITE])


async def test_a_notification_that_says_nothing_makes_all_be_read(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        broker = await w.broker()
        await w.session.create("/kafka-acl/Topic/orders", encode_acls([READ]))
        await w.session.create("/kafka-acl-changes/acl_changes_", b"???", sequential=True)
        await until(lambda: broker.acls == [READ])
        assert "all are read again" in caplog.text


async def test_old_notifications_are_purged() -> None:
    async with world() as w:
        broker = await w.broker()
        await broker.store.create([READ, PREFIX])
        w.clock.advance(24 * 3600)
        await broker.store.create([GROUP])
        assert await w.session.children("/kafka-acl-changes") == ["acl_changes_0000000001"]
        assert await w.session.children("/kafka-acl-extended-changes") == []


async def test_too_many_rules_for_one_node_are_refused() -> None:
    async with world() as w:
        session = LosingStore(w.store.connect())
        broker = await w.broker(session)  # type: ignore[arg-type]
        session.problems = [RequestTooLargeError("/kafka-acl/Topic/orders", 600_000, 524_288)]
        first, second = await broker.store.create([READ, GROUP])
        assert isinstance(first, InvalidRequestError)
        assert "too many" in first.message
        assert second is None
        assert broker.acls == [GROUP]
