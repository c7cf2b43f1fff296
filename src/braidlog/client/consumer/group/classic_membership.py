"""A classic membership as the program's thread sees it: what happens inside `poll`, before and after each rebalance."""

from __future__ import annotations

from copy import copy

from braidlog.client.consumer.assignors.embedded_protocol import write_subscription
from braidlog.client.consumer.assignors.interface import Assignment
from braidlog.client.consumer.assignors.strategies import all_cooperative, assignors_of
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.classic_member import ClassicMember, NextStep
from braidlog.client.consumer.group.classic_requests import ClassicRequests
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.consumer.group.identity import NO_MEMBER, GroupIdentity
from braidlog.client.consumer.group.leader_assignment import perform_assignment
from braidlog.client.consumer.group.leave_group import commit_error, leave_group, warn_unclosed
from braidlog.client.consumer.group.member_states import ClassicMemberState
from braidlog.client.consumer.group.membership import AutoCommit
from braidlog.client.consumer.group.rebalance_listener_invoker import RebalanceListenerInvoker
from braidlog.client.consumer.group.revocation_commit import RevocationCommit
from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata
from braidlog.client.consumer.subscription_state import SubscriptionKind
from braidlog.client.errors import ClientError, CommitFailedError, SettingError
from braidlog.core.protocol_errors import FencedInstanceIdError, ProtocolError, RebalanceInProgressError
from braidlog.core.types import TopicPartition


class ClassicMembership:
    def __init__(self, context: ConsumerContext) -> None:
        settings = context.settings
        group_id = context.group_id or ""
        if settings.number("heartbeat.interval.ms") >= settings.number("session.timeout.ms"):
            raise SettingError("heartbeat.interval.ms must be lower than session.timeout.ms, best a third of it")
        self.coordinator = CoordinatorClient(context.nodes, settings, group_id)
        self.commits: AutoCommit | None = None
        self._context = context
        self._subscription = context.subscription
        self._instance_id = settings.optional_text("group.instance.id")
        self._rack = settings.optional_text("client.rack")
        self._assignors = assignors_of(settings.items("partition.assignment.strategy"))
        # Eager members give everything up before they join; it takes one assignor that cannot do otherwise.
        self._is_eager = not all_cooperative(self._assignors)
        self._member = ClassicMember(
            group_id,
            self._instance_id,
            settings.number("session.timeout.ms"),
            settings.number("max.poll.interval.ms"),
        )
        self._heartbeat_timer = HeartbeatTimer(
            settings.seconds("heartbeat.interval.ms"),
            settings.seconds("session.timeout.ms"),
            settings.seconds("max.poll.interval.ms"),
            self._now(),
        )
        self._requests = ClassicRequests(
            context, self.coordinator, self._member, self._heartbeat_timer, self._assignors
        )
        self._listener_invoker = RebalanceListenerInvoker(self._subscription, group_id)
        self._is_started = False
        self._is_closed = False
        self._fatal: FencedInstanceIdError | None = None
        # What the subscription was when we last joined.
        self._joined_version = -1
        self._revocation_commit = RevocationCommit(context.clock, self._heartbeat_timer.max_poll_s / 2)
        self._looks_up_topics = False

    # Inside poll

    def advance(self, deadline: float) -> None:
        if self._is_closed:
            return
        self._heartbeat_timer.polled(self._now())
        self._start()
        self._raise_failure()
        while self._step():
            pass
        self._listener_invoker.raise_error()

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._context.engine.soon(self._requests.start)

    def _raise_failure(self) -> None:
        if self._fatal is not None:
            raise copy(self._fatal)
        with self._requests.lock:
            problem, self._requests.failure = self._requests.failure, None
        if isinstance(problem, FencedInstanceIdError):
            # Without the traceback that it is about to get, which has the consumer.
            self._fatal = copy(problem)
        if problem is not None:
            self._forget_lost()
            raise problem

    def _step(self) -> bool:
        """The next thing that has to be done here; false when there is nothing, or others have to do theirs first."""
        with self._requests.lock:
            state = self._member.state
            order = self._requests.pending_assignment
        if state is ClassicMemberState.ASSIGNED:
            return self._take()
        if state is ClassicMemberState.ASSIGNING and order is not None:
            self._perform_assignment()
            return False
        if state not in (ClassicMemberState.UNJOINED, ClassicMemberState.STABLE):
            return False
        with self._requests.lock:
            if self._joined_version != self._subscription.topics_version and state is ClassicMemberState.STABLE:
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
            if not self._revocation_commit.is_over(self.commits):
                return False
        # Meanwhile the coordinator may have given us up.
        if not self._member.is_known:
            self._forget_lost()
        else:
            going = self._to_give_up()
            self._listener_invoker.invoke_revoked(going)
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
        self._revocation_commit.forget()
        for assignor in self._assignors:
            assignor.on_reset()
        self._listener_invoker.invoke_lost(self._subscription.assignment())
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
        with self._requests.lock:
            if self._member.state not in (ClassicMemberState.UNJOINED, ClassicMemberState.STABLE):
                return
            self._member.begin_join()
        self._context.engine.soon(self._requests.begin_join, offers)

    def _perform_assignment(self) -> None:
        """By the program's own assignor; its errors are raised from poll."""
        with self._requests.lock:
            order, self._requests.pending_assignment = self._requests.pending_assignment, None
        if order is None:
            return
        problem: Exception | None = None
        shares: list[tuple[str, bytes]] = []
        try:
            shares = perform_assignment(order.assignor, order.members, order.facts)
        except Exception as raised:
            problem = raised
        self._context.engine.soon(order.finish, shares, problem)

    def _take(self) -> bool:
        share = self._requests.assignment or Assignment()
        wanted = set(share.partitions)
        owned = self._subscription.assigned()
        going = owned - wanted
        if not self._matches(wanted):
            with self._requests.lock:
                self._member.want_rejoin("its share does not fit what it subscribes to by now")
        else:
            if going:
                # Only cooperative members still have anything here.
                self._subscription.mark_pending_revocation(going)
                if not self._revocation_commit.is_over(self.commits):
                    return False
                self._listener_invoker.invoke_revoked(going)
                with self._requests.lock:
                    self._member.want_rejoin("it gave up partitions that others wait for")
            for assignor in self._assignors:
                if assignor.name == self._member.protocol:
                    assignor.on_assignment(share, self._member.generation)
            self._subscription.assign_from_group(share.partitions)
            if self.commits is not None:
                self.commits.restart_auto_commit()
            self._listener_invoker.invoke_assigned(wanted - owned)
        with self._requests.lock:
            if self._member.is_in(ClassicMemberState.ASSIGNED):
                self._member.taken()
        return True

    def _matches(self, wanted: set[TopicPartition]) -> bool:
        if self._subscription.kind is SubscriptionKind.TOPICS:
            return {each.topic for each in wanted} <= self._subscription.topics
        return self._subscription.is_auto

    # From outside

    @property
    def is_settled(self) -> bool:
        return self._member.state is ClassicMemberState.STABLE and self._member.rejoin is None

    def next_due(self) -> float | None:
        due = self._heartbeat_timer.last_poll + self._heartbeat_timer.max_poll_s / 3
        others = (self._revocation_commit.due(), self.commits.next_due() if self.commits is not None else None)
        return min([due, *(each for each in others if each is not None)])

    def enforce_rebalance(self, reason: str) -> None:
        with self._requests.lock:
            self._member.want_rejoin(reason or "the program asked for it")
        self._context.wakeup.notify()

    def leave(self, deadline: float, reason: str = "the consumer unsubscribed") -> None:
        # One that chooses its partitions itself has left already, if it ever was in the group.
        if not self._is_started or not self._subscription.is_auto:
            return
        self._revocation_commit.forget()
        self._joined_version = -1
        leave_group(
            self._context,
            self.commits,
            self._listener_invoker,
            self._member.is_known,
            self._requests.leave(reason),
            deadline,
        )
        self._listener_invoker.raise_error()

    def close(self, deadline: float) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.leave(deadline, "the consumer is being closed")
        finally:
            if self._is_started:
                self._context.engine.run(self._requests.stop())

    async def abandon(self) -> None:
        if self._is_closed or not self._is_started:
            return
        # A thread that is still inside a poll, while the program ends, must not join again.
        self._is_closed = True
        if self._subscription.is_auto:
            warn_unclosed(self.coordinator.group_id, self._instance_id)
        await self._requests.leave("the consumer was never closed")
        await self._requests.stop()

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(
            self.coordinator.group_id, self._member.generation, self._member.member_id, self._instance_id
        )

    def metrics(self) -> dict[str, float]:
        return {
            "rebalance-total": float(self._requests.rebalances),
            "last-heartbeat-seconds-ago": self._now() - self._heartbeat_timer.last_heard,
            "last-poll-seconds-ago": self._now() - self._heartbeat_timer.last_poll,
        }

    # For commits

    def commit_identity(self) -> GroupIdentity:
        if not self._subscription.is_auto:
            return NO_MEMBER
        with self._requests.lock:
            state, identity = self._member.state, self._member.identity
        if state in (ClassicMemberState.STABLE, ClassicMemberState.ASSIGNED):
            return identity
        if state is ClassicMemberState.UNJOINED:
            raise CommitFailedError(
                f"group {self.coordinator.group_id}: not committed, since this consumer is not in the group now; "
                "call poll() to join, and read on from what is committed"
            )
        raise RebalanceInProgressError(
            f"group {self.coordinator.group_id}: not committed, since the group is rebalancing; call poll() until that "
            "is over, then commit again what is still assigned"
        )

    def fetch_identity(self) -> GroupIdentity:
        return NO_MEMBER

    def on_commit_refused(self, sent: GroupIdentity, code: int) -> Exception | None:
        if sent == NO_MEMBER:
            return commit_error(self.coordinator.group_id, code)
        with self._requests.lock:
            try:
                step = self._member.on_refusal(sent, code)
            except (ProtocolError, ClientError) as problem:
                self._requests.failure = problem
                return problem
        self._context.wakeup.notify()
        # What it was refused for may be over, or is about to be: then the next generation is all it takes.
        return commit_error(
            self.coordinator.group_id, RebalanceInProgressError.code if step is NextStep.GO_ON else code
        )

    def _now(self) -> float:
        return self._context.clock.monotonic()
