from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import (
    BadVersionError,
    Check,
    Create,
    Operation,
    Outcome,
    SetData,
    UnknownOutcomeError,
    ensure_path,
    request_bytes,
)
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.plan import Put, Remove
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId
from support.memory_journal import MemoryJournalFiles


class SmallRequests(EmbeddedSession):
    """A session whose requests have a limit and whose answers may get lost, as ZooKeeper's."""

    limit = 2_000
    # Of the transactions to come: whether each happens although its answer is lost, or is lost before.
    fates: tuple[bool, ...] = ()

    def __init__(self, store: EmbeddedStore) -> None:
        opened = store.connect()
        super().__init__(store, opened.session_id, ManualClock().monotonic)
        store._sessions[opened.session_id] = self
        self.transactions: list[list[Operation]] = []

    @property
    def max_request_bytes(self) -> int:
        return self.limit

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        assert request_bytes(operations) <= self.limit
        self.transactions.append(list(operations))
        if self.fates:
            happens, *rest = self.fates
            self.fates = tuple(rest)
            if happens:
                await super().multi(operations)
            raise UnknownOutcomeError("lost")
        return await super().multi(operations)


def on_store(body: Callable[[EmbeddedStore, SmallRequests], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
            await body(store, SmallRequests(store))
            await store.close()

        asyncio.run(run())

    return test


@on_store
async def test_a_large_plan_is_cut_in_its_order_and_every_part_is_fenced(
    store: EmbeddedStore, session: SmallRequests
) -> None:
    fenced = await FencedStore.elect(session, BrokerId(1), 0)
    session.transactions.clear()
    steps = [Put("/first"), *(Create(f"/n{number:03d}", bytes(100)) for number in range(50)), Put("/last")]
    await fenced.commit(steps)
    assert len(session.transactions) > 3
    assert all(part[0] == Check(paths.CONTROLLER_EPOCH, 0) for part in session.transactions)
    written = [operation.path for part in session.transactions for operation in part[1:]]
    assert written == [step.path for step in steps]


@on_store
async def test_a_controller_that_was_replaced_changes_nothing(store: EmbeddedStore, session: SmallRequests) -> None:
    fenced = await FencedStore.elect(session, BrokerId(1), 0)
    with pytest.raises(NotControllerError):
        await FencedStore.elect(store.connect(), BrokerId(2), 0)
    await session.delete(paths.CONTROLLER)
    successor = await FencedStore.elect(store.connect(), BrokerId(2), 0)
    assert (fenced.epoch, successor.epoch) == (1, 2)
    for steps in ([Create("/a")], []):
        with pytest.raises(NotControllerError):
            await fenced.commit(steps)
    assert await session.exists("/a") is None


@pytest.mark.parametrize("fates", [(True,), (False,), (False, True), (False, False, False)])
def test_an_election_whose_answer_was_lost_is_recognised(fates: tuple[bool, ...]) -> None:
    @on_store
    async def body(store: EmbeddedStore, session: SmallRequests) -> None:
        session.fates = fates
        fenced = await FencedStore.elect(session, BrokerId(1), 0)
        assert fenced.epoch == 1
        await fenced.commit([Create("/a")])
        # After a resignation that did not reach the store the same node is ours, in a new epoch.
        assert (await FencedStore.elect(session, BrokerId(1), 0)).epoch == 2
        with pytest.raises(NotControllerError):
            await fenced.commit([Create("/b")])

    body()


@pytest.mark.parametrize("fates", [(True,), (False,), (False, True)])
@pytest.mark.parametrize(
    "steps",
    [
        [Create("/new", b"x")],
        [SetData("/old/node", b"x", 0)],
        [Remove("/old/node")],
        [Put("/old/node", b"x")],
        [Create("/old/notice-", b"x", sequential=True), Put("/new")],
    ],
)
def test_a_commit_whose_answer_was_lost_takes_effect_once(fates: tuple[bool, ...], steps: list[Operation]) -> None:
    @on_store
    async def body(store: EmbeddedStore, session: SmallRequests) -> None:
        fenced = await FencedStore.elect(session, BrokerId(1), 0)
        await ensure_path(session, "/old/node")
        await fenced.commit(steps)
        expected = await _content(session)
        await session.close()

        again = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        lossy = SmallRequests(again)
        fenced = await FencedStore.elect(lossy, BrokerId(1), 0)
        await ensure_path(lossy, "/old/node")
        lossy.fates = fates
        await fenced.commit(steps)
        assert await _content(lossy) == expected

    body()


async def _content(session: EmbeddedSession) -> dict[str, bytes]:
    found = {}
    for parent in ("", "/old"):
        for name in await session.children(parent or "/"):
            found[f"{parent}/{name}"] = (await session.get(f"{parent}/{name}")).data
    return found


ONE, TWO = BrokerId(1), BrokerId(2)


def opened() -> EmbeddedStore:
    return EmbeddedStore.open(MemoryJournalFiles(), ManualClock())


async def test_one_broker_is_elected_and_the_epoch_rises_with_each() -> None:
    store = opened()
    first, second = store.connect(), store.connect()
    assert (await FencedStore.elect(first, ONE, 0)).epoch == 1
    with pytest.raises(NotControllerError, match="/controller in the store"):
        await FencedStore.elect(second, TWO, 0)
    assert records.decode_controller(paths.CONTROLLER, (await second.get(paths.CONTROLLER)).data) == 1
    await first.close()
    assert (await FencedStore.elect(second, TWO, 0)).epoch == 2


async def test_steps_become_one_transaction() -> None:
    store = opened()
    session = store.connect()
    fenced = await FencedStore.elect(session, ONE, 0)
    await session.create("/there", b"old")
    await session.create("/goes")
    zxid = store.zxid
    await fenced.commit(
        [Put("/there", b"new"), Put("/fresh"), Put("/fresh", b"2"), Remove("/goes"), Remove("/never"), Create("/made")]
    )
    assert store.zxid == zxid + 1
    assert [node and node.data for node in await session.get_many(["/there", "/fresh", "/goes", "/made"])] == [
        b"new",
        b"2",
        None,
        b"",
    ]


async def test_a_refusal_of_a_step_is_passed_on_and_nothing_is_written() -> None:
    session = opened().connect()
    fenced = await FencedStore.elect(session, ONE, 0)
    await session.create("/a")
    with pytest.raises(BadVersionError):
        await fenced.commit([Put("/b"), SetData("/a", b"x", 7)])
    assert await session.exists("/b") is None


async def test_a_removed_node_can_be_put_again_in_the_same_commit() -> None:
    session = opened().connect()
    fenced = await FencedStore.elect(session, ONE, 0)
    await session.create("/a", b"old")
    await fenced.commit([Remove("/a"), Put("/a", b"new")])
    assert (await session.get("/a")).data == b"new"
