"""A broker whose disk was wiped never passes its empty log off as the one that the cluster counts on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest

from braidlog import Producer
from braidlog.client.admin import Admin, ConfigResource, ElectionType, NewTopic
from braidlog.cluster import paths, records
from braidlog.cluster.records import PartitionStateRecord
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import Partition
from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SimulatedBroker
from support.simulation.replicated_workload import ReplicatedWorkload

WHERE: Final = TopicPartition("orders", 0)
RECORDS: Final = 5


class Life:
    """Three brokers that hold one partition; the first one leads it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.first, self.second, self.third = cluster.brokers
        self._program = SimulatedProgram(cluster.simulation, "client")

    async def begin(self) -> None:
        await self.cluster.start()
        await self.create()
        await self.until(lambda: self.knows_of_epoch(self.first) and self.held(self.first).leader == 1)

    async def create(self) -> None:
        await self.ask(lambda admin: admin.create_topics([NewTopic(WHERE.topic, assignment=[[1, 2, 3]])]))

    async def write(self) -> None:
        async def send() -> None:
            producer = Producer(bootstrap_servers=self.cluster.servers)
            await asyncio.gather(*(producer.send(WHERE.topic, f"{each}") for each in range(RECORDS)))
            await self._program.call(producer.close)

        await self._program.spawn(send())

    async def ask(self, work: Callable[[Admin], Any]) -> None:
        async def asked() -> None:
            admin = Admin(bootstrap_servers=self.cluster.servers)
            (await self._program.call(work, admin)).raise_for_errors()
            await self._program.call(admin.close)

        await self._program.spawn(asked())

    async def lead_alone(self) -> None:
        """The first broker has records that no other one has."""
        self.second.kill()
        self.third.kill()
        await self.until(lambda: self.state().isr == (1,))
        await self.write()
        assert self.held(self.first).log is not None

    def state(self) -> PartitionStateRecord:
        path = paths.partition_state(*WHERE)
        return records.decode_partition_state(path, self.cluster.zookeeper.tree.node(path).data)

    def held(self, broker: SimulatedBroker) -> Partition:
        found = broker.parts.registry.get(*WHERE)
        assert found is not None
        return found

    def knows_of_epoch(self, broker: SimulatedBroker) -> bool:
        """Of the newest; it may not have been told of any yet."""
        found = broker.parts.registry.get(*WHERE)
        return found is not None and found.leader_epoch == self.state().leader_epoch

    def end_of(self, broker: SimulatedBroker) -> int:
        """-1 where it has no log."""
        found = broker.parts.registry.get(*WHERE)
        return -1 if found is None or found.log is None else found.log.log_end_offset

    def is_whole(self) -> bool:
        """All have what was written first, and are in sync."""
        ends = [self.end_of(broker) for broker in self.cluster.brokers]
        return ends == [RECORDS] * 3 and set(self.state().isr) == {1, 2, 3}

    def offline(self, broker: SimulatedBroker) -> bool:
        found = broker.parts.registry.get(*WHERE)
        return found is not None and found.log is None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110 - simulated time has to pass
                await asyncio.sleep(0.1)


@pytest.fixture(params=range(2))
def life(request: pytest.FixtureRequest) -> Iterator[Life]:
    with SimulatedCluster(request.param, settings={"unclean.leader.election.enable": "false"}) as cluster:
        yield Life(cluster)


def run(life: Life, work: Callable[[], Awaitable[None]]) -> None:
    async def lived() -> None:
        await life.begin()
        await work()

    life.cluster.run(lived())


def test_the_last_replica_in_sync_does_not_lead_without_its_log(life: Life) -> None:
    async def work() -> None:
        await life.lead_alone()
        life.first.wipe_disk()
        await life.first.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)
        # Whoever is asked: only the lost records would tell whether there is more than the others have.
        await life.second.start()
        await life.third.start()
        await life.until(lambda: life.knows_of_epoch(life.second))
        assert life.state().isr == (1,)
        assert any("orders-0" in line and "lost" in line for line, _ in life.cluster.simulation.errors)

    run(life, work)


def test_a_random_life_takes_no_other_disk_meanwhile(life: Life) -> None:
    """Its budget: the last one in sync is in sync without its log, too, and is not whole for that."""
    workload = ReplicatedWorkload(life.cluster, steps=0)

    async def work() -> None:
        assert workload._is_whole(life.first)
        await life.lead_alone()
        life.first.wipe_disk()
        await life.cluster.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)
        assert life.state().isr == (1,)
        assert not workload._is_whole(life.first)
        await life.ask(lambda admin: admin.elect_leaders([WHERE], ElectionType.UNCLEAN))
        await life.until(lambda: workload._is_whole(life.first))

    run(life, work)


def test_another_start_changes_nothing(life: Life) -> None:
    async def work() -> None:
        await life.lead_alone()
        life.first.wipe_disk()
        await life.first.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)
        life.first.kill()
        await life.first.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)

    run(life, work)


def test_an_unclean_election_takes_a_replica_that_has_records(life: Life) -> None:
    async def work() -> None:
        await life.write()
        await life.lead_alone()
        life.first.wipe_disk()
        await life.cluster.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)
        await life.ask(lambda admin: admin.elect_leaders([WHERE], ElectionType.UNCLEAN))
        # The wiped one copies what there is.
        await life.until(life.is_whole)
        assert life.state().leader in (2, 3)

    run(life, work)


def test_an_unclean_election_on_request_takes_an_empty_log_where_there_is_no_other(life: Life) -> None:
    async def work() -> None:
        await life.lead_alone()
        life.first.wipe_disk()
        await life.first.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)
        await life.ask(lambda admin: admin.elect_leaders([WHERE], ElectionType.UNCLEAN))
        await life.until(lambda: life.state().leader == 1 and not life.offline(life.first))
        assert life.end_of(life.first) == 0
        await life.write()

    run(life, work)


def test_where_unclean_elections_are_allowed_an_empty_log_leads(life: Life) -> None:
    async def work() -> None:
        await life.lead_alone()
        allowed = {ConfigResource.topic(WHERE.topic): {"unclean.leader.election.enable": "true"}}
        await life.ask(lambda admin: admin.alter_configs(allowed))
        life.first.wipe_disk()
        await life.first.start()
        await life.until(lambda: life.state().leader == 1 and not life.offline(life.first))
        assert life.end_of(life.first) == 0

    run(life, work)


def test_one_that_is_back_before_the_others_waits_for_them(life: Life) -> None:
    """All are gone at once, so that all stay in the ISR."""

    async def work() -> None:
        await life.write()
        life.first.wipe_disk()
        life.second.kill()
        life.third.kill()
        starting = asyncio.ensure_future(life.first.start())
        await asyncio.sleep(100)
        assert set(life.state().isr) == {1, 2, 3}
        await life.second.start()
        await starting
        await life.third.start()
        await life.until(life.is_whole)

    run(life, work)


def test_one_that_others_do_not_come_back_to_stays_offline(life: Life) -> None:
    async def work() -> None:
        await life.write()
        life.first.wipe_disk()
        life.second.kill()
        life.third.kill()
        await life.first.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)
        # In sync or not is not known any more, but they are whole.
        await life.cluster.start()
        await life.ask(lambda admin: admin.elect_leaders([WHERE], ElectionType.UNCLEAN))
        await life.until(life.is_whole)

    run(life, work)


def test_one_replica_of_several_is_copied_anew(life: Life) -> None:
    async def work() -> None:
        await life.write()
        life.first.wipe_disk()
        await life.first.start()
        await life.until(life.is_whole)

    run(life, work)


def test_a_topic_whose_last_replica_in_sync_was_lost_can_be_deleted_and_made_again(life: Life) -> None:
    """There is nothing left to delete where the disk was replaced, and the next topic has lost nothing there."""

    async def work() -> None:
        await life.lead_alone()
        life.first.wipe_disk()
        await life.cluster.start()
        await life.until(lambda: life.offline(life.first) and life.state().leader == -1)
        await life.ask(lambda admin: admin.delete_topics([WHERE.topic]))
        await life.until(lambda: life.cluster.zookeeper.tree.find(paths.topic(WHERE.topic)) is None)
        await life.create()
        await life.write()
        await life.until(life.is_whole)
        assert life.held(life.first).leader == 1

    run(life, work)


def test_one_that_led_a_topic_which_goes_after_a_move_does_not_lead_it_with_an_empty_log(life: Life) -> None:
    """The topic is served until then, and its records count."""

    async def work() -> None:
        await life.write()
        # The move waits for the third broker, and the deletion for the move.
        life.third.kill()
        await life.until(lambda: set(life.state().isr) == {1, 2})
        await life.ask(lambda admin: admin.alter_partition_reassignments({WHERE: [3, 2]}))
        await life.ask(lambda admin: admin.delete_topics([WHERE.topic]))
        life.second.kill()
        life.first.wipe_disk()
        starting = asyncio.ensure_future(life.first.start())
        await asyncio.sleep(30)
        assert not starting.done()
        await life.second.start()
        await life.until(lambda: life.state().leader == 2)
        await starting
        await life.third.start()
        await life.until(lambda: life.cluster.zookeeper.tree.find(paths.topic(WHERE.topic)) is None)

    run(life, work)


def test_one_that_waits_for_the_others_hears_of_settings_in_its_next_session(life: Life) -> None:
    """The watch in which it would have heard of them ended with its session."""

    async def work() -> None:
        await life.write()
        life.first.wipe_disk()
        life.second.kill()
        life.third.kill()
        starting = asyncio.ensure_future(life.first.start())
        await asyncio.sleep(10)
        assert not starting.done()
        life.cluster.zookeeper.expire(life.first.parts.session.session_id)
        await life.second.start()
        await starting
        await life.third.start()
        changed = {ConfigResource.topic(WHERE.topic): {"retention.ms": "12345"}}
        await life.ask(lambda admin: admin.alter_configs(changed))
        await life.until(
            lambda: life.first.parts.metadata_cache.image.config(f"topics/{WHERE.topic}") == {"retention.ms": "12345"}
        )

    run(life, work)
