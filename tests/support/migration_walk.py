"""Every broker of a cluster is replaced by one of the other kind, under load; `docs/MIGRATING.md` has the commands."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

from braidlog import Admin
from braidlog.cli.reassignment.kafka_json import parse_plan, plan_text
from braidlog.cli.reassignment.throttles import FOLLOWERS, LEADERS, RATES
from braidlog.client.admin.configs import ConfigResource
from support.broker import BRAIDLOG, KAFKA
from support.broker_files import (
    changed_nodes,
    complaints_of_dump_log,
    files_to_dump,
    identity,
    leader_epochs,
    strange_files,
    topic_ids,
    unchecked_logs,
)
from support.command_line import Ended, RunningCommand, run_command
from support.eventually import eventually
from support.migrated_state import (
    MOVING,
    NEW_SETTINGS,
    OLD_FORMATS,
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

# The commands of docs/MIGRATING.md, without --bootstrap and what belongs to a cluster.
STATUS: Final = ("cluster", "status")
UNDER_REPLICATED: Final = ("topics", "describe", "--under-replicated")
MOVES: Final = ("reassign", "status")
EXECUTE: Final = ("reassign", "execute")
THROTTLE: Final = ("--throttle", "50MB", "--yes")
COMMANDS: Final = (STATUS, UNDER_REPLICATED, MOVES)

_SLOW: Final = ("--throttle", "1kB", "--yes")
_RATES: Final = {*RATES}
FOLLOWER_RATE: Final = RATES[1]
_CLEAN_START: Final = {
    KAFKA: r"Skipping recovery of \d+ logs from .* since clean shutdown file was found",
    BRAIDLOG: r"opened \d+ logs after a clean stop",
}
# Of either make's log, about files; Kafka has its remarks on formats of old.
_COMPLAINT: Final = re.compile(
    r"(WARN|ERROR|FATAL) (?!.*message\.format\.version).*\((kafka\.log|org\.apache\.kafka\.storage)\."
    r"|(WARNING|ERROR) braidlog\.(storage|broker:)"
)
_SAID_OF_SETTINGS: Final = (
    "unknown setting confluent.support.metrics.enable",
    "set, but without effect here (docs/SETTINGS.md says why): num.io.threads, num.network.threads",
)
_LISTS: Final = {LEADERS, FOLLOWERS}


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """Between nested dicts, by the path of their keys."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return [] if before == now else [f"{path}: {before!r} before, {now!r} now"]
    return [text for key in {**before, **now} for text in differences(before.get(key), now.get(key), f"{path}/{key}")]


def _check_taken_over(broker: MigratingBroker) -> None:
    """What the other kind has left is trusted, and nothing of it is wondered at."""
    lines = broker.log_of_this_life()
    assert any(re.search(_CLEAN_START[broker.kind], line) for line in lines), broker.log(200)
    assert [line for line in lines if _COMPLAINT.search(line)] == []
    if broker.kind == BRAIDLOG:
        for said in _SAID_OF_SETTINGS:
            assert sum(said in line for line in lines) == 1, broker.log(200)


class Walk:
    """A cluster of Kafka with all that is to outlive the walk; `under_load` is one direction of it."""

    def __init__(
        self, cluster: MigratingCluster, lone_replica: int | None = None, *, throttles_leaders: bool = True
    ) -> None:
        """With a topic of one replica on that broker, if there is to be one.

        Throttled leaders also hold back a replica that is copied anew.
        """
        self.cluster = cluster
        self._throttles_leaders = throttles_leaders
        # The kinds of the controller and of the others, whenever a broker was replaced.
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        self._lone_replica = lone_replica
        self._compacted: set[str] = set()
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        cluster = self.cluster
        cluster.set(OLD_SETTINGS)
        cluster.start_all(KAFKA)
        write_old_formats(cluster)
        cluster.stop_all()
        cluster.set(NEW_SETTINGS)
        cluster.start_all(KAFKA)
        self.state = ClusterState(cluster, self._lone_replica)
        self._static = StaticMembers(cluster.bootstrap_servers)
        self._stack.callback(self._static.close)
        self._say("the cluster is made")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    @contextmanager
    def under_load(self, kind: str) -> Iterator[None]:
        """All brokers are replaced by this kind in the block; in the end all of them are stopped."""
        cluster = self.cluster
        self._replicated = Replicated(cluster, KINDS.values(), self._replicas(), min_isr=2)
        # A replica that was away copies what compaction has left, and begins an epoch with the first of that.
        self._compacted |= {topic for topic, kind in self._replicated.topics.items() if kind.rules.compacted}
        self._transaction = OpenTransaction(cluster.bootstrap_servers, next(self._numbers))
        self._begin_move()
        self._facts = self.state.facts(cluster.brokers[0])
        # What a move changes: assignments, and the settings that throttle it.
        self._expected_nodes: set[str] = set()
        nodes = self._nodes()
        identities = {broker.data_dir: identity(broker.data_dir) for broker in cluster.brokers}
        with self._replicated.traffic.running():
            yield
            self._replicated.go_on()
        self._say(f"all are {kind}")
        assert cluster.kinds() == [kind] * len(cluster.brokers)
        assert changed_nodes(nodes, self._nodes(), self._expected_nodes) == []
        self._transaction.commit()
        self._end_move()
        self._replicated.check()
        assert self.state.records() == self.state.before
        for broker in cluster.brokers:
            assert self.state.formats(broker) == {topic: {magic} for topic, (_, magic) in OLD_FORMATS.items()}
        verdict = self._replicated.traffic.verdict()
        self._say(", ".join(f"{name} {value}" for name, value in verdict._asdict().items()))
        cluster.stop_all()
        for broker in cluster.brokers:
            if broker.data_dir in identities:
                assert identity(broker.data_dir) == identities[broker.data_dir]
        self._check_files()
        self._say("files are checked")

    def _check_files(self) -> None:
        """Of all brokers, which are stopped."""
        epochs: dict[str, list[tuple[int, int]]] = {}
        ids = self._facts["topic ids"]
        for broker in self.cluster.brokers:
            which = f"{broker.kind} {broker.id}"
            assert strange_files(broker.data_dir) == [], which
            assert unchecked_logs(broker.data_dir) == [], which
            for partition, topic_id in topic_ids(broker.data_dir).items():
                assert topic_id == ids[partition.rpartition("-")[0]], f"{partition} on {which}"
            for partition, entries in leader_epochs(broker.data_dir).items():
                if partition.rpartition("-")[0] in self._compacted:
                    continue
                assert epochs.setdefault(partition, entries) == entries, f"epochs of {partition} on {which}"
        assert complaints_of_dump_log(files_to_dump(self.cluster.brokers[0].data_dir)) == []

    def _replicas(self) -> list[list[int]]:
        ids = [broker.id for broker in self.cluster.brokers]
        return [[*ids[number:], *ids[:number]] for number in range(2)]

    # Steps

    def replace_in_place(self, broker: MigratingBroker, kind: str) -> None:
        self._before(broker, kind)
        broker.stop()
        broker.start(kind)
        _check_taken_over(broker)
        self._after(broker)

    def replace_with_empty_directory(self, broker: MigratingBroker, kind: str) -> None:
        self._before(broker, kind)
        broker.stop()
        broker.empty_data_dir()
        broker.start(kind)
        self._after(broker)

    def replace_by_another_id(self, broker: MigratingBroker, kind: str) -> None:
        """It also picks up the move that is under way."""
        self._before(broker, kind)
        self._check_moving()
        new = self.cluster.add(max(each.id for each in self.cluster.brokers) + 10, kind)
        new.start(kind)
        self.cluster.agreed()
        self.run(*EXECUTE, "--without", str(broker.id), *THROTTLE)
        self._plan = None
        broker.stop()
        self.cluster.remove(broker)
        self._replicated.replicas = self._replicas()
        self._facts["configs"].pop(str(ConfigResource.broker(broker.id)), None)
        for configs in self._facts["configs"].values():
            for name in _RATES | _LISTS:
                configs.pop(name, None)
        self._expected_nodes |= {"/brokers/topics", "/config/brokers", "/config/topics"}
        self._after(new)

    def _before(self, broker: MigratingBroker, kind: str) -> None:
        assert broker.kind != kind
        self.await_whole()
        self._static.away()

    def _after(self, broker: MigratingBroker) -> None:
        cluster = self.cluster
        controller = cluster.controller()
        others = tuple(each.kind for each in cluster.brokers if each is not controller)
        self.seen.append((controller.kind, others))
        self.await_whole()
        self._replicated.go_on()
        for each in cluster.brokers:
            self._await_facts(each)
        self.state.check_logins(broker)
        self._transaction.check_open()
        self._static.back()
        self._say(f"{broker.kind} {broker.id} is in; the controller is {controller.kind} {controller.id}")

    # Looks

    def run(self, *words: str) -> Ended:
        """A command of the page, against all brokers."""
        try:
            ended = run_command(self.cluster.bootstrap_servers, *words)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.ask(*MOVES)}\n{self.cluster.logs(200)}") from None
        assert ended.code == 0, f"braidlog {' '.join(words)}: {ended.out}{ended.err}"
        return ended

    def ask(self, *words: str) -> Any:
        """What a command says; None where no broker answers it."""
        ended = run_command(self.cluster.bootstrap_servers, *words, "--output", "json")
        return json.loads(ended.out) if ended.out else None

    def await_whole(self) -> None:
        """Until `braidlog cluster status` shows nothing but what is being moved."""
        rows: list[Any] = []

        def whole() -> bool:
            status = self.ask(*STATUS)
            if status is None:
                return False
            rows[:] = [row for row in status["partitions"] if not self._is_well(row)]
            rows.extend(row for row in status["brokers"] if row["state"] != "up")
            return not rows

        try:
            eventually(whole, WHOLE_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"not whole: {rows}\n{self.cluster.logs()}") from None
        lagging = self.ask(*UNDER_REPLICATED)
        assert {row["topic"] for row in lagging} <= {MOVING.topic}, lagging

    def _is_well(self, row: Any) -> bool:
        """Of what is being moved, what was there before is in sync."""
        coming = self._coming if row["topic"] == MOVING.topic else ()
        return all(each["state"] == "online" or each["broker"] in coming for each in row["replicas"])

    def _await_facts(self, broker: MigratingBroker) -> None:
        """Until a broker that has just started has heard of everything."""
        found: list[str] = []

        def same() -> bool:
            found[:] = differences(self._facts, self.state.facts(broker))
            return not found

        try:
            eventually(same, KNOWN_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"as {broker.kind} {broker.id} tells: {found}") from None

    def _nodes(self) -> dict[str, Znode]:
        with zookeeper_client(self.cluster.connect) as client:
            return read_tree(client, "/")

    # The unfinished move

    def _begin_move(self) -> None:
        ids = [broker.id for broker in self.cluster.brokers]
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            (topic,) = admin.describe_topics([MOVING.topic]).succeeded.values()
        now = topic.partitions[0].replicas
        self._plan: Path | None = self.cluster.brokers[0].settings_file.parent / "move.json"
        self._coming = [each for each in ids if each not in now]
        self._plan.write_text(plan_text({MOVING: (*now[1:], *self._coming)}))
        if not self._throttles_leaders:
            self._begin_held_back()
            return
        command = RunningCommand(self.cluster.bootstrap_servers, *EXECUTE, "--plan", str(self._plan), *_SLOW)
        eventually(lambda: bool(self.ask(*MOVES)))
        # Whoever started it may go: the move goes on in the cluster.
        command.kill()
        self._await_throttles([ConfigResource.broker(broker.id) for broker in self.cluster.brokers], _RATES)

    def _begin_held_back(self) -> None:
        """Only the broker that is to have the replica is throttled: one that lost the other is not to wait for it."""
        (to,) = (ConfigResource.broker(each) for each in self._coming)
        changes = {
            ConfigResource.topic(MOVING.topic): {FOLLOWERS: f"{MOVING.partition}:{to.name}"},
            to: {FOLLOWER_RATE: "1000"},
        }
        assert self._plan is not None
        after = parse_plan(self._plan.read_text(), str(self._plan)).replicas[MOVING]
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.alter_configs(changes).raise_for_errors()
            self._await_throttles([to], {FOLLOWER_RATE})
            admin.alter_partition_reassignments({MOVING: list(after)}).raise_for_errors()

    def _await_throttles(self, brokers: list[ConfigResource], names: set[str]) -> None:
        """Kafka's brokers answer a change of their settings before they have heard of it."""

        def known() -> bool:
            with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
                configs = admin.describe_configs(brokers).succeeded
            return all(configs.get(each, {}).keys() >= names for each in brokers)

        eventually(known, KNOWN_WITHIN_S)

    def _check_moving(self) -> None:
        assert [row["topic"] for row in self.ask(*MOVES)] == [MOVING.topic], "the move did not last"

    def _end_move(self) -> None:
        if self._plan is not None:
            self._check_moving()
            self.run(*EXECUTE, "--plan", str(self._plan), *THROTTLE)
        assert self.ask(*MOVES) == []
