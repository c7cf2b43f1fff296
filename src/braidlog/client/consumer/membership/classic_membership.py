"""A classic membership as the program's thread sees it: what happens inside `poll`, before and after each rebalance."""

from __future__ import annotations

from copy import copy

from braidlog.client.consumer.assignors.choosing import all_cooperative, choose
from braidlog.client.consumer.assignors.interface import Share
from braidlog.client.consumer.assignors.layouts import write_subscription
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.coordinator_link import CoordinatorLink
from braidlog.client.consumer.membership.classic import ClassicMember, Next
from braidlog.client.consumer.membership.classic_talk import ClassicTalk
from braidlog.client.consumer.membership.heartbeats import Heartbeats
from braidlog.client.consumer.membership.identity import NOBODY, Identity
from braidlog.client.consumer.membership.interface import Saving
from braidlog.client.consumer.membership.leading import share_out
from braidlog.client.consumer.membership.ownership import Ownership
from braidlog.client.consumer.membership.parting import commit_refusal, part, warn_of_abandoned
from braidlog.client.consumer.membership.saving import BeforeGivingUp
from braidlog.client.consumer.membership.states import Classic
from braidlog.client.consumer.offsets import GroupMetadata
from braidlog.client.consumer.subscription import SubscriptionKind
from braidlog.client.errors import ClientError, CommitFailedError, SettingError
from braidlog.core.protocol_errors import FencedInstanceIdError, ProtocolError, RebalanceInProgressError
from braidlog.core.types import TopicPartition


class ClassicMembership:
    def __init__(self, context: ConsumerContext) -> None:
        settings = context.settings
        group_id = context.group_id or ""
        if settings.number("heartbeat.interval.ms") >= settings.number("session.timeout.ms"):
            raise SettingError("heartbeat.interval.ms must be lower than session.timeout.ms, best a third of it")
        self.link = CoordinatorLink(context.nodes, settings, group_id)
        self.commits: Saving | None = None
        self._context = context
        self._subscription = context.subscription
        self._instance_id = settings.optional_text("group.instance.id")
        self._rack = settings.optional_text("client.rack")
        self._assignors = choose(settings.items("partition.assignment.strategy"))
        # Eager members give everything up before they join; it takes one assignor that cannot do otherwise.
        self._is_eager = not all_cooperative(self._assignors)
        self._member = ClassicMember(
            group_id,
            self._instance_id,
            settings.number("session.timeout.ms"),
            settings.number("max.poll.interval.ms"),
        )
        self._beats = Heartbeats(
            settings.seconds("heartbeat.interval.ms"),
            settings.seconds("session.timeout.ms"),
            settings.seconds("max.poll.interval.ms"),
            self._now(),
        )
        self._talk = ClassicTalk(context, self.link, self._member, self._beats, self._assignors)
        self._ownership = Ownership(self._subscription, group_id)
        self._is_started = False
        self._is_closed = False
        self._fatal: FencedInstanceIdError | None = None
        # What the subscription was when we last joined.
        self._joined_version = -1
        self._saving = BeforeGivingUp(context.clock, self._beats.max_poll_s / 2)
        self._looks_up_topics = False

    # Inside poll

    def advance(self, deadline: float) -> None:
        if self._is_closed:
            return
        self._beats.polled(self._now())
        self._start()
        self._raise_failure()
        while self._step():
            pass
        self._ownership.raise_error()

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._context.engine.soon(self._talk.start)

    def _raise_failure(self) -> None:
        if self._fatal is not None:
            raise copy(self._fatal)
        with self._talk.lock:
            problem, self._talk.failure = self._talk.failure, None
        if isinstance(problem, FencedInstanceIdError):
            # Without the traceback that it is about to get, which has the consumer.
            self._fatal = copy(problem)
        if problem is not None:
            self._forget_lost()
            raise problem

    def _step(self) -> bool:
        """The next thing that has to be done here; false when there is nothing, or others have to do theirs first."""
        with self._talk.lock:
            state = self._member.state
            order = self._talk.order
        if state is Classic.TAKING:
            return self._take()
        if state is Classic.ASSIGNING and order is not None:
            self._share_out()
            return False
        if state not in (Classic.OUT, Classic.STABLE):
            return False
        with self._talk.lock:
            if self._joined_version != self._subscription.topics_version and state is Classic.STABLE:
                self._member.want_rejoin("the subscription changed")
            if self._member.rejoin is None:
                return False
        if self._knows_topics() and self._prepare():
            self._join()
        return False

    def _knows_topics(self) -> bool:
        """A pattern without metadata would join for nothing, and again at once."""
        if self._subscription.kind is not SubscriptionKind.PATTERN or self._context.metadata.version > 0:
            return True
        if not self._looks_up_topics:
            self._looks_up_topics = True
            self._context.engine.soon(self._context.metadata.request_update)
        return False

    def _prepare(self) -> bool:
        """Before a join: let go of what an eager member must not keep, and of what is lost anyway."""
        if self._member.is_known:
            going = self._to_give_up()
            self._subscription.mark_pending_revocation(going)
            if not self._saving.is_over(self.commits):
                return False
        # Meanwhile the coordinator may have given us up.
        if not self._member.is_known:
            self._forget_lost()
        else:
            going = self._to_give_up()
            self._ownership.revoke(going)
            self._keep(self._subscription.assigned() - set(going))
        return True

    def _to_give_up(self) -> list[TopicPartition]:
        assigned = self._subscription.assignment()
        if self._is_eager:
            return assigned
        topics = self._subscription.topics
        return [each for each in assigned if each.topic not in topics]

    def _forget_lost(self) -> None:
        # A commit that was begun for what is lost says nothing of what comes next.
        self._saving.forget()
        for assignor in self._assignors:
            assignor.on_reset()
        self._ownership.lose(self._subscription.assignment())
        self._keep(())

    def _keep(self, partitions: frozenset[TopicPartition] | tuple[TopicPartition, ...]) -> None:
        if self._subscription.is_auto and self._subscription.assignment():
            self._subscription.assign_from_group(partitions)

    def _join(self) -> None:
        self._joined_version = self._subscription.topics_version
        topics = sorted(self._subscription.topics)
        owned = self._subscription.assignment()
        generation = self._member.generation
        offers = [
            (each.name, write_subscription(topics, each.user_data(topics), owned, generation, self._rack))
            for each in self._assignors
        ]
        with self._talk.lock:
            if self._member.state not in (Classic.OUT, Classic.STABLE):
                return
            self._member.begin_join()
        self._context.engine.soon(self._talk.begin_join, offers)

    def _share_out(self) -> None:
        """By the program's own assignor; its errors are raised from poll."""
        with self._talk.lock:
            order, self._talk.order = self._talk.order, None
        if order is None:
            return
        problem: Exception | None = None
        shares: list[tuple[str, bytes]] = []
        try:
            shares = share_out(order.assignor, order.members, order.facts)
        except Exception as raised:
            problem = raised
        self._context.engine.soon(order.finish, shares, problem)

    def _take(self) -> bool:
        share = self._talk.share or Share()
        wanted = set(share.partitions)
        owned = self._subscription.assigned()
        going = owned - wanted
        if not self._matches(wanted):
            with self._talk.lock:
                self._member.want_rejoin("its share does not fit what it subscribes to by now")
        else:
            if going:
                # Only cooperative members still have anything here.
                self._subscription.mark_pending_revocation(going)
                if not self._saving.is_over(self.commits):
                    return False
                self._ownership.revoke(going)
                with self._talk.lock:
                    self._member.want_rejoin("it gave up partitions that others wait for")
            for assignor in self._assignors:
                if assignor.name == self._member.protocol:
                    assignor.on_assignment(share, self._member.generation)
            self._subscription.assign_from_group(share.partitions)
            if self.commits is not None:
                self.commits.restart_auto_commit()
            self._ownership.take(wanted - owned)
        with self._talk.lock:
            if self._member.is_in(Classic.TAKING):
                self._member.taken()
        return True

    def _matches(self, wanted: set[TopicPartition]) -> bool:
        if self._subscription.kind is SubscriptionKind.TOPICS:
            return {each.topic for each in wanted} <= self._subscription.topics
        return self._subscription.is_auto

    # From outside

    @property
    def is_settled(self) -> bool:
        return self._member.state is Classic.STABLE and self._member.rejoin is None

    def next_due(self) -> float | None:
        due = self._beats.last_poll + self._beats.max_poll_s / 3
        others = (self._saving.due(), self.commits.next_due() if self.commits is not None else None)
        return min([due, *(each for each in others if each is not None)])

    def enforce_rebalance(self, reason: str) -> None:
        with self._talk.lock:
            self._member.want_rejoin(reason or "the program asked for it")
        self._context.doorbell.ring()

    def leave(self, deadline: float, reason: str = "the consumer unsubscribed") -> None:
        # One that chooses its partitions itself has left already, if it ever was in the group.
        if not self._is_started or not self._subscription.is_auto:
            return
        self._saving.forget()
        self._joined_version = -1
        part(self._context, self.commits, self._ownership, self._member.is_known, self._talk.leave(reason), deadline)
        self._ownership.raise_error()

    def close(self, deadline: float) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.leave(deadline, "the consumer is being closed")
        finally:
            if self._is_started:
                self._context.engine.run(self._talk.stop())

    async def abandon(self) -> None:
        if self._is_closed or not self._is_started:
            return
        # A thread that is still inside a poll, while the program ends, must not join again.
        self._is_closed = True
        if self._subscription.is_auto:
            warn_of_abandoned(self.link.group_id, self._instance_id)
        await self._talk.leave("the consumer was never closed")
        await self._talk.stop()

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self.link.group_id, self._member.generation, self._member.member_id, self._instance_id)

    def metrics(self) -> dict[str, float]:
        return {
            "rebalance-total": float(self._talk.rebalances),
            "last-heartbeat-seconds-ago": self._now() - self._beats.last_heard,
            "last-poll-seconds-ago": self._now() - self._beats.last_poll,
        }

    # For commits

    def commit_identity(self) -> Identity:
        if not self._subscription.is_auto:
            return NOBODY
        with self._talk.lock:
            state, identity = self._member.state, self._member.identity
        if state in (Classic.STABLE, Classic.TAKING):
            return identity
        if state is Classic.OUT:
            raise CommitFailedError(
                f"group {self.link.group_id}: not committed, since this consumer is not in the group now; "
                "call poll() to join, and read on from what is committed"
            )
        raise RebalanceInProgressError(
            f"group {self.link.group_id}: not committed, since the group is rebalancing; call poll() until that is "
            "over, then commit again what is still assigned"
        )

    def fetch_identity(self) -> Identity:
        return NOBODY

    def on_commit_refused(self, sent: Identity, code: int) -> Exception | None:
        if sent == NOBODY:
            return commit_refusal(self.link.group_id, code)
        with self._talk.lock:
            try:
                step = self._member.on_refusal(sent, code)
            except (ProtocolError, ClientError) as problem:
                self._talk.failure = problem
                return problem
        self._context.doorbell.ring()
        # What it was refused for may be over, or is about to be: then the next generation is all it takes.
        return commit_refusal(self.link.group_id, RebalanceInProgressError.code if step is Next.GO_ON else code)

    def _now(self) -> float:
        return self._context.clock.monotonic()
