"""Every broker of a cluster is replaced by one of the other kind, under load; `docs/MIGRATING.md` has the commands."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Self

from braidlog import Admin
from braidlog.cli.reassignment.kafka_json import plan_text
from braidlog.client.admin.configs import ConfigResource
from support.broker import KAFKA
from support.command_line import Ended, RunningCommand, run_command
from support.eventually import eventually
from support.migrated_state import (
    MOVING,
    NEW_SETTINGS,
    OLD_SETTINGS,
    ClusterState,
    OpenTransaction,
    StaticMembers,
    write_old_formats,
)
from support.migrating_cluster import KNOWN_WITHIN_S, MigratingBroker, MigratingCluster
from support.mixed_cluster import Znode, read_tree, zookeeper_client
from support.mixed_replication import Replicated
from support.replicated_traffic import KINDS

# What a step waits for, on a machine that is busy with other things.
WHOLE_WITHIN_S: Final = 180.0

# The commands of docs/MIGRATING.md, without --bootstrap.
STATUS: Final = ("cluster", "status")
UNDER_REPLICATED: Final = ("topics", "describe", "--under-replicated")
MOVES: Final = ("reassign", "status")
_SLOW: Final = "1kB"
_THROTTLES: Final = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """Between nested dicts, by the path of their keys."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return [] if before == now else [f"{path}: {before!r} before, {now!r} now"]
    return [text for key in {**before, **now} for text in differences(before.get(key), now.get(key), f"{path}/{key}")]


class Walk:
    """A cluster of Kafka with all that is to outlive the walk; `under_load` is one direction of it."""

    def __init__(self, cluster: MigratingCluster, lone_replica: int | None = None) -> None:
        self.cluster = cluster
        self._lone_replica = lone_replica
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self.report: list[str] = []
        self._began = time.monotonic()
        # The kinds of the controller and of the others, whenever a broker was replaced.
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def __enter__(self) -> Self:
        cluster = self.cluster
        cluster.set(OLD_SETTINGS)
        cluster.start_all(KAFKA)
        write_old_formats(cluster)
        cluster.stop_all()
        cluster.set(NEW_SETTINGS)
        cluster.start_all(KAFKA)
        self.state = ClusterState(cluster, self._lone_replica)
        self.static = StaticMembers(cluster.bootstrap_servers)
        self._stack.callback(self.static.close)
        self._say("the cluster is made")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        print("\n".join(["", *self.report]))

    def _say(self, text: str) -> None:
        self.report.append(f"{time.monotonic() - self._began:6.1f} s  {text}")
        print(self.report[-1], flush=True)

    @contextmanager
    def under_load(self, kind: str) -> Iterator[None]:
        """All brokers are replaced by this kind in the block."""
        cluster = self.cluster
        self.replicated = Replicated(cluster, KINDS.values(), self._replicas(), min_isr=2)
        transaction = self.transaction = OpenTransaction(cluster.bootstrap_servers, next(self._numbers))
        self._begin_move()
        before = self.standing()
        self._await_throttles()
        self.facts = self.state.facts(cluster.brokers[0])
        for each in cluster.brokers:
            self._await_facts(each)
        with self.replicated.traffic.running():
            yield
            self.replicated.go_on()
        self._say("all are replaced")
        assert cluster.kinds() == [kind] * 3
        transaction.commit()
        self._end_move()
        self.replicated.check()
        self._say(f"checked: {self.replicated.traffic.verdict()}")

    def _replicas(self) -> list[list[int]]:
        ids = [broker.id for broker in self.cluster.brokers]
        return [[*ids[number:], *ids[:number]] for number in range(2)]

    # Steps

    def replace_in_place(self, broker: MigratingBroker, kind: str) -> None:
        self._before(broker, kind)
        broker.stop()
        broker.start(kind)
        self._after(broker)

    def replace_with_empty_directory(self, broker: MigratingBroker, kind: str) -> None:
        self._before(broker, kind)
        broker.stop()
        broker.empty_data_dir()
        broker.start(kind)
        self._after(broker)

    def replace_by_another_id(self, broker: MigratingBroker, kind: str) -> None:
        self._before(broker, kind)
        new = self.cluster.add(max(each.id for each in self.cluster.brokers) + 10, kind)
        new.start(kind)
        self.cluster.agreed()
        self.run("reassign", "execute", "--without", str(broker.id), "--yes")
        broker.stop()
        self.cluster.remove(broker)
        self.replicated.replicas = self._replicas()
        self._after(new)

    def _before(self, broker: MigratingBroker, kind: str) -> None:
        assert broker.kind != kind
        self.await_whole()
        self.static.away()

    def _after(self, broker: MigratingBroker) -> None:
        cluster = self.cluster
        import os
        for each in cluster.brokers:
            lines = [l for l in each.log_of_this_life() if "WARN" in l or "ERROR" in l or "FATAL" in l]
            with open(os.environ["WALK_LOG"], "a") as f:
                f.write(f"=== after {broker.kind} {broker.id}: log of {each.kind} {each.id}\n" + "\n".join(lines[-100:]) + "\n")
        controller = cluster.controller()
        others = tuple(each.kind for each in cluster.brokers if each is not controller)
        self.seen.append((controller.kind, others))
        self.await_whole()
        self.replicated.go_on()
        for each in cluster.brokers:
            self._await_facts(each)
        self.state.check_logins(broker)
        self.transaction.check_open()
        self.static.back()
        self._say(f"{broker.kind} {broker.id} is in; the controller is {controller.kind} {controller.id} of {others}")

    # Looks

    def _await_facts(self, broker: MigratingBroker) -> None:
        """Until a broker that has just started has heard of everything."""
        found: list[str] = []

        def same() -> bool:
            found[:] = differences(self.facts, self.state.facts(broker))
            return not found

        try:
            eventually(same, KNOWN_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"as {broker.kind} {broker.id} tells: {found}") from None

    def run(self, *words: str) -> Ended:
        """A command of the page, against all brokers."""
        ended = run_command(self.cluster.bootstrap_servers, *words)
        assert ended.code == 0, f"braidlog {' '.join(words)}: {ended.out}{ended.err}"
        return ended

    def ask(self, *words: str) -> Any:
        ended = run_command(self.cluster.bootstrap_servers, *words, "--output", "json")
        return json.loads(ended.out) if ended.out else None

    def await_whole(self) -> None:
        """Until `braidlog cluster status` shows nothing but what is being moved."""
        rows: list[Any] = []

        def whole() -> bool:
            status = self.ask(*STATUS)
            if status is None:
                return False
            rows[:] = [row for row in status["partitions"] if row["state"] != "online"]
            rows.extend(row for row in status["brokers"] if row["state"] != "up")
            return all(row.get("topic") == MOVING.topic for row in rows)

        try:
            eventually(whole, WHOLE_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"not whole: {rows}\n{self.cluster.logs()}") from None

    def standing(self) -> dict[str, Znode]:
        with zookeeper_client(self.cluster.connect) as client:
            return read_tree(client, "/")

    # The unfinished move

    def _begin_move(self) -> None:
        ids = [broker.id for broker in self.cluster.brokers]
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            (topic,) = admin.describe_topics([MOVING.topic]).succeeded.values()
        now = topic.partitions[0].replicas
        self._plan = self.cluster.brokers[0].settings_file.parent / "move.json"
        after = (*now[1:], *(each for each in ids if each not in now))
        self._plan.write_text(plan_text({MOVING: after}))
        command = RunningCommand(
            self.cluster.bootstrap_servers,
            "reassign",
            "execute",
            "--plan",
            str(self._plan),
            "--throttle",
            _SLOW,
            "--yes",
        )
        eventually(lambda: bool(self.ask(*MOVES)))
        # Whoever started it may go: the move goes on in the cluster.
        command.kill()

    def _await_throttles(self) -> None:
        """Kafka's brokers answer a change of their settings before they have heard of it."""
        brokers = [ConfigResource.broker(broker.id) for broker in self.cluster.brokers]

        def known() -> bool:
            with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
                configs = admin.describe_configs(brokers).succeeded
            return all(configs.get(each, {}).keys() >= _THROTTLES for each in brokers)

        eventually(known, KNOWN_WITHIN_S)

    def _end_move(self) -> None:
        assert [row["topic"] for row in self.ask(*MOVES)] == [MOVING.topic], "the move did not outlast the walk"
        self.run("reassign", "execute", "--plan", str(self._plan), "--throttle", "100MB", "--yes")
        assert self.ask(*MOVES) == []
