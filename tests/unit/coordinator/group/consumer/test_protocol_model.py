"""Arbitrary members, silences, changes of topics and crashes: what must hold of a group that the broker assigns.

one owner     no partition is owned by two members at once, by what the members themselves believe
durable       what a replay of the log gives, compacted or not, is what the shard has
converges     once everybody is quiet and obedient, every partition that somebody reads has an owner
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.shard import ReplayedRecord
from support.consumer_groups import GROUP, ChangingTopics, ConsumerDriver, Owned, synced
from support.responders import RecordingResponder

TOPICS = ("t1", "t2", "x")
PATTERNS = ("t.", "t1|x", ".*", "")
SESSION_MS = 10_000
REBALANCE_MS = 4_000

subscriptions = st.just(list(TOPICS)) | st.lists(st.sampled_from(TOPICS), unique=True)
# What happens next; one rule for all, since rules of their own would leave most runs without several members at once.
HAPPENINGS = (
    *["beat"] * 12,
    *["beat_all"] * 2,
    *["join"] * 3,
    *["join_classic"] * 2,
    *["subscribe"] * 2,
    *["leave"] * 2,
    "die",
    *["time_passes"] * 3,
    *["change_topic"] * 2,
    "crash",
)


@dataclass
class Client:
    """What a member believes."""

    member_id: str
    topics: list[str]
    classic: bool = False
    instance_id: str | None = None
    epoch: int = 0
    # What it reads from right now. It takes something new only after it let go of what it must.
    owned: Owned = field(default_factory=dict)
    # What it was last told, where it has not acted upon it yet.
    assignment_of: Owned | None = None
    must_join: bool = False
    # It missed an answer: the next request tells everything, and is told everything.
    unsure: bool = False

    def obey(self) -> None:
        if self.assignment_of is not None:
            self.owned, self.assignment_of = self.assignment_of, None

    def says(self) -> Owned | None:
        """One that has yet to act upon what it was told says nothing: what it does not own now it may soon."""
        return self.owned if self.assignment_of is None else None

    def drops(self) -> None:
        self.epoch, self.owned, self.assignment_of = 0, {}, None


class Members(RuleBasedStateMachine):
    @initialize(assignor=st.sampled_from(["uniform", "range"]))
    def start(self, assignor: str) -> None:
        self.topics = ChangingTopics(t1=3)
        group_settings = GroupSettings(
            min_session_timeout_ms=1,
            initial_rebalance_delay_ms=0,
            consumer_session_timeout_ms=SESSION_MS,
            consumer_max_size=6,
            consumer_assignors=(assignor, "uniform"),
        )
        self.driver = ConsumerDriver(self.topics, group_settings)
        self.clients: list[Client] = []
        self.names = 0
        self.steps = 0
        for _ in range(2):
            self._join(Client(self._new_name(), list(TOPICS)), "")

    def _new_name(self) -> str:
        self.names += 1
        return f"c{self.names}"

    @rule(happening=st.sampled_from(HAPPENINGS), data=st.data())
    def next(self, happening: str, data: st.DataObject) -> None:
        getattr(self, happening)(data)

    # What members do

    def join(self, data: st.DataObject) -> None:
        if len(self.clients) < 5:
            instance = data.draw(st.sampled_from([None, None, "i", "j"]))
            client = Client(self._new_name(), data.draw(subscriptions), instance_id=instance)
            self._join(client, data.draw(st.sampled_from(PATTERNS)))

    def _join(self, client: Client, pattern: str) -> None:
        answer = self.driver.join(
            client.member_id,
            *client.topics,
            subscribed_topic_regex=pattern,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        if answer.error_code == 0:
            # One that comes back for its instance takes the place of the former member, which went.
            self._forget_instance(client)
            self.clients.append(client)
            self._hear(client, answer)

    def join_classic(self, data: st.DataObject) -> None:
        if not self._members() or len(self.clients) >= 5:
            return
        topics = data.draw(subscriptions)
        asked = self.driver.join_classic("", *topics, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS)
        if asked.response is None:
            return
        client = Client(asked.response.member_id, topics, classic=True)
        self.clients.append(client)
        self._join_again(client)

    def beat_all(self, data: st.DataObject) -> None:
        self._beat_everybody()

    def _beat_everybody(self) -> None:
        """Everybody does as it was told."""
        for client in list(self.clients):
            client.obey()
            if client.classic:
                self._beat_classic(client, lost=False)
            else:
                answer = self._beat(client, says=True)
                client.unsure = False
                self._hear(client, answer)
            client.obey()

    def beat(self, data: st.DataObject) -> None:
        """A heartbeat of a member that may not have acted yet, may not say what it owns, may miss the answer."""
        if not self.clients:
            return
        client = data.draw(st.sampled_from(self.clients))
        obeys, says, lost = (data.draw(st.sampled_from([usual, usual, not usual])) for usual in (True, True, False))
        if obeys:
            client.obey()
        if client.classic:
            self._beat_classic(client, lost)
        else:
            answer = self._beat(client, says)
            client.unsure = lost
            if not lost:
                self._hear(client, answer)

    def _beat(self, client: Client, says: bool) -> RecordingResponder:
        if not client.unsure:
            owned = client.says() if says else None
            return self.driver.beat(client.member_id, client.epoch, owned, instance_id=client.instance_id)
        client.obey()
        return self.driver.beat(
            client.member_id,
            client.epoch,
            client.owned,
            instance_id=client.instance_id,
            subscribed_topic_names=client.topics,
            rebalance_timeout_ms=REBALANCE_MS,
        )

    def subscribe(self, data: st.DataObject) -> None:
        able = [client for client in self.clients if not client.classic]
        if not able:
            return
        client = data.draw(st.sampled_from(able))
        topics = client.topics = data.draw(subscriptions)
        answer = self.driver.beat(
            client.member_id,
            client.epoch,
            client.says(),
            subscribed_topic_names=topics,
            instance_id=client.instance_id,
        )
        self._hear(client, answer)

    def leave(self, data: st.DataObject) -> None:
        if not self.clients:
            return
        client = data.draw(st.sampled_from(self.clients))
        back = data.draw(st.booleans())
        self.clients.remove(client)
        if client.classic:
            self.driver.leave_classic(client.member_id)
        else:
            epoch = -2 if back and client.instance_id is not None else -1
            self.driver.leave(client.member_id, epoch, instance_id=client.instance_id)
        self._classic_group_ends()

    def die(self, data: st.DataObject) -> None:
        """It stops without a word; the group finds out later."""
        if self.clients:
            self.clients.remove(data.draw(st.sampled_from(self.clients)))

    # What the world does

    def time_passes(self, data: st.DataObject) -> None:
        self.driver.advance(data.draw(st.sampled_from([0.5, 0.5, 3.0, 3.0, 5.0, 11.0])))
        self._fenced_ones_stop()
        self._classic_group_ends()

    def change_topic(self, data: st.DataObject) -> None:
        name, count = data.draw(st.sampled_from(TOPICS)), data.draw(st.integers(1, 4))
        known = self.topics.get(name)
        if known is None:
            self.topics.create(name, count)
        elif count > known.partitions:
            self.topics.grow(name, count)
        elif count == 1:
            self.topics.delete(name)
            for client in self.clients:
                client.owned.pop(name, None)
                if client.assignment_of is not None:
                    client.assignment_of.pop(name, None)
        self.driver.topics_changed()

    def crash(self, data: st.DataObject) -> None:
        self.durable()
        self.driver.crash()

    # How members act upon answers

    def _hear(self, client: Client, answer: RecordingResponder) -> None:
        if answer.error_code != 0:
            # Fenced, or unknown: it gives up everything and comes back as a new member.
            client.drops()
            if client in self.clients:
                self.clients.remove(client)
            self.driver.leave(client.member_id, -1, instance_id=client.instance_id)
            self._classic_group_ends()
            return
        client.epoch = answer.response.member_epoch
        assignment_of = self.driver.assignment_of(answer)
        if assignment_of is not None:
            assignment_of.pop("gone", None)
            client.assignment_of = assignment_of

    def _beat_classic(self, client: Client, lost: bool) -> None:
        if client.must_join and not lost:
            self._join_again(client)
            return
        answer = self.driver.beat_classic(client.member_id, client.epoch)
        if answer.error_code not in (0, 27):
            self._drop_classic(client)
        elif answer.error_code == 27 and not lost:
            client.must_join = True

    def _join_again(self, client: Client) -> None:
        """Cooperative: it goes on reading what it owns, and takes what the sync brings."""
        joined = self.driver.join_classic(
            client.member_id,
            *client.topics,
            owned=client.owned,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        if joined.error_code != 0:
            self._drop_classic(client)
            return
        client.epoch = joined.response.generation_id
        sync = self.driver.sync_classic(client.member_id, client.epoch)
        if sync.error_code == 27:
            client.must_join = True
        elif sync.error_code == 0:
            client.must_join = False
            client.owned = synced(sync)
        else:
            self._drop_classic(client)

    def _drop_classic(self, client: Client) -> None:
        client.drops()
        self.driver.leave_classic(client.member_id)
        if client in self.clients:
            self.clients.remove(client)

    def _forget_instance(self, client: Client) -> None:
        if client.instance_id is not None:
            self.clients = [other for other in self.clients if other.instance_id != client.instance_id]

    def _members(self) -> list[str]:
        group = self.driver.shard.groups.get(GROUP)
        return list(group.members) if isinstance(group, ConsumerGroup) else []

    def _fenced_ones_stop(self) -> None:
        """A member that was silent for so long does not read either: its own timeouts are shorter."""
        known = self._members()
        for client in self.clients:
            if client.member_id not in known:
                client.drops()

    def _classic_group_ends(self) -> None:
        """Only members of the classic protocol are left: here they all leave, the rest is another model's."""
        group = self.driver.shard.groups.get(GROUP)
        if group is not None and not isinstance(group, ConsumerGroup):
            self.driver.leave_classic(*getattr(group, "members", ()))
            self.clients.clear()

    # What must hold

    @invariant()
    def one_owner(self) -> None:
        owners: dict[tuple[str, int], str] = {}
        known = self._members()
        for client in self.clients:
            if client.member_id in known:
                for name, numbers in client.owned.items():
                    for number in numbers:
                        assert (name, number) not in owners, f"{owners[name, number]} and {client.member_id}"
                        owners[name, number] = client.member_id

    @invariant()
    def durable_now_and_then(self) -> None:
        self.steps += 1
        if self.steps % 8 == 0:
            self.durable()

    def durable(self) -> None:
        state = self.driver.shard.durable_state()
        assert self.driver.rebuilt().durable_state() == state
        log = self.driver.log
        last = {entry.key: place for place, entry in enumerate(log) if isinstance(entry, ReplayedRecord)}
        self.driver.log = [log[place] for place in sorted(last.values())]
        try:
            assert self.driver.rebuilt().durable_state() == state
        finally:
            self.driver.log = log

    @invariant()
    def consistent(self) -> None:
        group = self.driver.shard.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        assert group.target_epoch <= group.epoch
        taken: list[tuple[bytes, int]] = []
        for member in group.members.values():
            for part in (member.progress.assigned, member.progress.revoking):
                taken += [(topic, number) for topic, numbers in part.items() for number in numbers]
        assert len(taken) == len(set(taken))
        assert all(group.is_taken(*place) for place in taken)

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for _ in range(30):
            self._beat_everybody()
            self.driver.advance(1.0)
            self._classic_group_ends()
        group = self.driver.shard.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup) or not group.members:
            return
        assert group.state_name() == "Stable"
        assert set(group.members) == {client.member_id for client in self.clients}
        owned = sorted((n, p) for client in self.clients for n, parts in client.owned.items() for p in parts)
        wanted = sorted(
            (name, p) for name, topic in group.subscription_metadata.items() for p in range(topic.partitions)
        )
        assert owned == wanted
        self.one_owner()
        self.durable()


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
