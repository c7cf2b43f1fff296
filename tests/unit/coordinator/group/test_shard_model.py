"""A shard of groups under any interleaving of what clients send, time passing, and crashes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from braidlog.coordinator.group.classic.group import ClassicGroup
from braidlog.coordinator.group.settings import GroupSettings
from support.classic_groups import ClassicDriver, subscription
from support.responders import RecordingResponder

MEMBER_ID_REQUIRED = 79
PARTITIONS = 4
GROUPS = ("orders", "payments")
OFFERS = (
    {"range": subscription("t")},
    {"range": subscription("t", "u"), "sticky": b"x"},
    {"sticky": b"x", "range": subscription("t")},
    {"sticky": b"y"},
)


@dataclass
class Client:
    """What one client knows, which may be out of date."""

    group: str
    instance: str | None
    offer: dict[str, bytes] = field(default_factory=lambda: OFFERS[0])
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    others: list[str] = field(default_factory=list)
    join: RecordingResponder | None = None
    # The sync that waits, and for which generation it was sent.
    sync: tuple[RecordingResponder, int] | None = None


clients = st.integers(0, 7)


class GroupShardModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = ClassicDriver(GroupSettings(max_size=4))
        # The last two of each group are two processes that were given the same instance id.
        self.clients = [Client(group, "instance" if number >= 2 else None) for group in GROUPS for number in range(4)]
        # (group, partition) -> what was last acknowledged.
        self.committed: dict[tuple[str, int], int] = {}
        # (group, generation) -> partition -> whom it was given to.
        self.owners: dict[tuple[str, int], dict[int, str]] = {}

    # What clients do

    @rule(which=clients, offer=st.sampled_from(OFFERS), forget=st.booleans(), version=st.sampled_from([2, 4, 8, 9]))
    def join(self, which: int, offer: dict[str, bytes], forget: bool, version: int) -> None:
        client = self.clients[which]
        client.offer = offer
        if forget:
            client.member_id = ""
        client.join = self.driver.join(
            client.member_id,
            instance=client.instance if version >= 5 else None,
            protocols=offer,
            version=version,
            client=f"c{which}",
            rebalance_ms=20_000,
            group=client.group,
        )
        self.listen()

    @rule(which=clients)
    def restart(self, which: int) -> None:
        """The process comes back with what it was configured with, and nothing else."""
        client = self.clients[which]
        self.join(which, client.offer, True, 9)

    @rule(which=clients)
    def sync(self, which: int) -> None:
        client = self.clients[which]
        parts: dict[str, bytes] = {}
        if client.leads:
            for partition in range(PARTITIONS):
                member = client.others[partition % len(client.others)]
                parts[member] = parts.get(member, b"") + bytes([partition])
        responder = self.driver.sync(
            client.member_id, client.generation, parts, instance=client.instance, group=client.group
        )
        client.sync = (responder, client.generation)
        self.listen()

    @rule(which=clients)
    def heartbeat(self, which: int) -> None:
        client = self.clients[which]
        responder = self.driver.heartbeat(
            client.member_id, client.generation, instance=client.instance, group=client.group
        )
        assert responder.answered
        self.listen()

    @rule(which=clients, by_instance=st.booleans())
    def leave(self, which: int, by_instance: bool) -> None:
        client = self.clients[which]
        if by_instance and client.instance is not None:
            self.driver.leave(("", client.instance), group=client.group)
        else:
            self.driver.leave(client.member_id, group=client.group)
        self.listen()

    @rule(which=clients, partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 50), simple=st.booleans())
    def commit(self, which: int, partition: int, offset: int, simple: bool) -> None:
        client = self.clients[which]
        known = () if simple else (client.member_id, client.generation)
        responder = self.driver.commit(offset, *known, partition=partition, group=client.group)
        if responder.error is None:
            self.committed[(client.group, partition)] = offset

    @rule(group=st.sampled_from(GROUPS))
    def delete(self, group: str) -> None:
        responder = self.driver.delete(group)
        if responder.error is None:
            self.forget(group)

    @rule(group=st.sampled_from(GROUPS), absent=clients, offer=st.sampled_from(OFFERS[:3]))
    def all_but_one_settle(self, group: str, absent: int, offer: dict[str, bytes]) -> None:
        """What well-behaved clients do together; left to chance it is rare."""
        taking_part = [which for which, client in enumerate(self.clients) if client.group == group and which != absent]
        for _ in range(2):
            for which in taking_part:
                self.join(which, offer, False, 9)
        self.time_passes(6.0)
        for which in taking_part:
            self.sync(which)

    # What the world does

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 9.0, 21.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.driver.advance(seconds)
        self.listen()

    @rule(seconds=st.sampled_from([0.5, 9.0, 21.0]))
    def the_broker_stalls(self, seconds: float) -> None:
        self.driver.stall(seconds)
        self.listen()

    @rule()
    @precondition(lambda self: len(self.driver.log) > 0)
    def crash(self) -> None:
        self.driver.crash()
        self.driver.responders.clear()
        for client in self.clients:
            client.join = client.sync = None

    # What clients learn

    def listen(self) -> None:
        for client in self.clients:
            if client.join is not None and client.join.answered:
                self.hear_join(client, client.join)
                client.join = None
            if client.sync is not None and client.sync[0].answered:
                self.hear_sync(client, *client.sync)
                client.sync = None
        for group in GROUPS:
            if group not in self.driver.shard.groups:
                self.forget(group)

    def hear_join(self, client: Client, responder: RecordingResponder) -> None:
        if responder.error is not None:
            return
        answer = responder.response
        client.member_id = answer.member_id
        if answer.error_code == MEMBER_ID_REQUIRED:
            return
        client.generation = answer.generation_id
        client.others = [member.member_id for member in answer.members]
        client.leads = bool(client.others) and not answer.skip_assignment

    def hear_sync(self, client: Client, responder: RecordingResponder, generation: int) -> None:
        if responder.error is not None:
            return
        owner = client.instance or client.member_id
        owners = self.owners.setdefault((client.group, generation), {})
        for partition in responder.response.assignment:
            assert owners.setdefault(partition, owner) == owner, (
                f"{client.group} generation {generation}: partition {partition} for {owner} and {owners[partition]}"
            )

    def forget(self, group: str) -> None:
        """A group that is gone starts anew, from generation 0 and without offsets."""
        self.owners = {key: owners for key, owners in self.owners.items() if key[0] != group}
        self.committed = {key: offset for key, offset in self.committed.items() if key[0] != group}

    # What always holds

    @invariant()
    def a_replay_gives_the_same(self) -> None:
        assert self.driver.rebuilt().durable_state() == self.driver.shard.durable_state()

    @invariant()
    def offsets_are_what_was_last_acknowledged(self) -> None:
        for group in GROUPS:
            for partition in range(PARTITIONS):
                assert self.driver.committed(partition, group=group) == self.committed.get((group, partition), -1)
        self.driver.responders = [responder for responder in self.driver.responders if not responder.answered]

    @invariant()
    def the_books_of_every_group_agree(self) -> None:
        for group in self.driver.shard.groups.values():
            assert isinstance(group, ClassicGroup)
            members = group.members
            waiting = [member for member in members.values() if member.join_responder is not None]
            assert group.num_awaiting_join == len(waiting)
            assert (group.leader in members) if members else group.leader is None
            assert group.pending_syncs.keys() <= members.keys()
            assert not group.pending_joins.keys() & members.keys()
            static = {member.instance_id: member.member_id for member in members.values() if member.instance_id}
            assert group.static_members == static
            if group.state in ("CompletingRebalance", "Stable"):
                assert not waiting
                assert members
                assert group.select_protocol() is not None
            if group.state == "Empty":
                assert not members
            if group.state != "CompletingRebalance":
                assert all(member.sync_responder is None for member in members.values())
            else:
                leader = members[group.leader or ""]
                assert leader.sync_responder is None

    def teardown(self) -> None:
        """Left alone, everybody is answered and every group is empty in the end."""
        self.driver.advance(1_000.0)
        waiting = [responder for responder in self.driver.responders if not responder.answered]
        assert waiting == []
        assert {group.state_name() for group in self.driver.shard.groups.values()} <= {"Empty"}
        # Only the check of old offsets is left.
        assert len(self.driver.shard.deadlines) == 1


TestGroupShard = GroupShardModel.TestCase
TestGroupShard.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
