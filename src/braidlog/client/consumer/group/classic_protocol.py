"""The classic protocol in the program's thread: what happens inside `poll` before and after each rebalance."""

from __future__ import annotations

from braidlog.client.consumer.assignors.embedded_protocol import write_subscription
from braidlog.client.consumer.assignors.interface import Assignment
from braidlog.client.consumer.assignors.strategies import all_cooperative, assignors_of
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.classic_member import ClassicMember, ClassicMemberState, NextStep
from braidlog.client.consumer.group.classic_requests import ClassicRequests
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.consumer.group.leader_assignment import perform_assignment
from braidlog.client.consumer.group.member import NO_MEMBER, GroupIdentity, commit_error
from braidlog.client.consumer.group.reconciliation import Reconciliation
from braidlog.client.consumer.subscription_state import SubscriptionKind
from braidlog.client.errors import ClientError, CommitFailedError, SettingError
from braidlog.core.protocol_errors import ProtocolError, RebalanceInProgressError
from braidlog.core.types import TopicPartition


class ClassicProtocol:
    def __init__(
        self, context: ConsumerContext, coordinator: CoordinatorClient, reconciliation: Reconciliation
    ) -> None:
        settings = context.settings
        if settings.number("heartbeat.interval.ms") >= settings.number("session.timeout.ms"):
            raise SettingError("heartbeat.interval.ms must be lower than session.timeout.ms, best a third of it")
        self._context = context
        self._group_id = coordinator.group_id
        self._subscription = context.subscription
        self._reconciliation = reconciliation
        self._rack = settings.optional_text("client.rack")
        self._assignors = assignors_of(settings.items("partition.assignment.strategy"))
        # Eager members give everything up before they join; it takes one assignor that cannot do otherwise.
        self._is_eager = not all_cooperative(self._assignors)
        self._member = ClassicMember(
            self._group_id,
            settings.optional_text("group.instance.id"),
            settings.number("session.timeout.ms"),
            settings.number("max.poll.interval.ms"),
        )
        self.heartbeat_timer = HeartbeatTimer(
            settings.seconds("heartbeat.interval.ms"),
            settings.seconds("session.timeout.ms"),
            settings.seconds("max.poll.interval.ms"),
            context.clock.monotonic(),
        )
        self.requests = ClassicRequests(context, coordinator, self._member, self.heartbeat_timer, self._assignors)
        # What the subscription was when we last joined.
        self._joined_version = -1
        self._looks_up_topics = False

    @property
    def is_member(self) -> bool:
        return self._member.is_known

    @property
    def is_settled(self) -> bool:
        return self._member.is_in(ClassicMemberState.STABLE) and self._member.rejoin is None

    @property
    def identity(self) -> GroupIdentity:
        return self._member.identity

    # Inside poll

    def step(self) -> bool:
        with self.requests.lock:
            state = self._member.state
            pending = self.requests.pending_assignment
        if state is ClassicMemberState.ASSIGNED:
            return self._take_assignment()
        if state is ClassicMemberState.ASSIGNING and pending is not None:
            self._perform_assignment()
            return False
        if state not in (ClassicMemberState.UNJOINED, ClassicMemberState.STABLE):
            return False
        with self.requests.lock:
            if self._joined_version != self._subscription.topics_version and state is ClassicMemberState.STABLE:
                self._member.want_rejoin("the subscription changed")
            if self._member.rejoin is None:
                return False
        if self._knows_topics() and self._prepare_join():
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

    def _prepare_join(self) -> bool:
        """Revoke what an eager member must not keep, and what is lost anyway; False while that is committed."""
        if self._member.is_known and not self._reconciliation.is_committed(self._to_revoke()):
            return False
        # Meanwhile the coordinator may have expelled us.
        if self._member.is_known:
            self._reconciliation.revoke(self._to_revoke())
        else:
            self._lose_all()
        return True

    def _to_revoke(self) -> list[TopicPartition]:
        assigned = self._subscription.assignment()
        if self._is_eager:
            return assigned
        topics = self._subscription.topics
        return [each for each in assigned if each.topic not in topics]

    def _lose_all(self) -> None:
        for assignor in self._assignors:
            assignor.on_reset()
        self._reconciliation.lose_all()

    def _join(self) -> None:
        self._joined_version = self._subscription.topics_version
        topics = sorted(self._subscription.topics)
        owned = self._subscription.assignment()
        generation = self._member.generation
        offers = [
            (each.name, write_subscription(topics, each.user_data(topics), owned, generation, self._rack))
            for each in self._assignors
        ]
        with self.requests.lock:
            if self._member.state not in (ClassicMemberState.UNJOINED, ClassicMemberState.STABLE):
                return
            self._member.begin_join()
        self._context.engine.soon(self.requests.begin_join, offers)

    def _perform_assignment(self) -> None:
        """By the program's own assignor; its errors are raised from poll."""
        with self.requests.lock:
            pending, self.requests.pending_assignment = self.requests.pending_assignment, None
        if pending is None:
            return
        problem: Exception | None = None
        assignments: list[tuple[str, bytes]] = []
        try:
            assignments = perform_assignment(pending.assignor, pending.members, pending.topics)
        except Exception as raised:
            problem = raised
        self._context.engine.soon(pending.finish, assignments, problem)

    def _take_assignment(self) -> bool:
        assignment = self.requests.assignment or Assignment()
        wanted = set(assignment.partitions)
        owned = self._subscription.assigned()
        if not self._matches(wanted):
            with self.requests.lock:
                self._member.want_rejoin("its assignment does not fit what it subscribes to by now")
        else:
            revoked = owned - wanted
            if revoked:
                # Only cooperative members still have anything here.
                if not self._reconciliation.is_committed(revoked):
                    return False
                self._reconciliation.revoke(revoked)
                with self.requests.lock:
                    self._member.want_rejoin("it gave up partitions that others wait for")
            for assignor in self._assignors:
                if assignor.name == self._member.protocol:
                    assignor.on_assignment(assignment, self._member.generation)
            self._reconciliation.assign(assignment.partitions, wanted - owned)
        with self.requests.lock:
            if self._member.is_in(ClassicMemberState.ASSIGNED):
                self._member.taken()
        return True

    def _matches(self, wanted: set[TopicPartition]) -> bool:
        if self._subscription.kind is SubscriptionKind.TOPICS:
            return {each.topic for each in wanted} <= self._subscription.topics
        return self._subscription.is_auto

    # For the membership

    def on_failure(self) -> None:
        self._lose_all()

    def on_leave(self) -> None:
        self._joined_version = -1

    def enforce_rebalance(self, reason: str) -> None:
        with self.requests.lock:
            self._member.want_rejoin(reason or "the program asked for it")
        self._context.wakeup.notify()

    def metrics(self) -> dict[str, float]:
        return {"rebalance-total": float(self.requests.rebalances)}

    # For commits

    def commit_identity(self) -> GroupIdentity:
        with self.requests.lock:
            state, identity = self._member.state, self._member.identity
        if state in (ClassicMemberState.STABLE, ClassicMemberState.ASSIGNED):
            return identity
        if state is ClassicMemberState.UNJOINED:
            raise CommitFailedError(
                f"group {self._group_id}: not committed, since this consumer is not in the group now; "
                "call poll() to join, and read on from what is committed"
            )
        raise RebalanceInProgressError(
            f"group {self._group_id}: not committed, since the group is rebalancing; call poll() until that "
            "is over, then commit again what is still assigned"
        )

    def on_commit_refused(self, sent: GroupIdentity, code: int) -> Exception | None:
        if sent == NO_MEMBER:
            return commit_error(self._group_id, code)
        with self.requests.lock:
            try:
                step = self._member.on_refusal(sent, code)
            except (ProtocolError, ClientError) as problem:
                self.requests.failure = problem
                return problem
        self._context.wakeup.notify()
        # What it was refused for may be over, or is about to be: then the next generation is all it takes.
        return commit_error(self._group_id, RebalanceInProgressError.code if step is NextStep.DONE else code)
