"""Moves carried out against a cluster in memory, whose copying the test drives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from braidlog.cli.output import Progress
from braidlog.cli.reassignment.execution import Execution
from braidlog.cli.reassignment.moves import Move, read_cluster
from braidlog.client.admin import ConfigResource, Replica
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.errors import RequestTimeout
from support.fake_admin import FakeCluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
MOVES = [Move(A0, (0, 1), (2, 1), 100), Move(A1, (0, 1), (1, 0), 50)]


class Run:
    """Each pause of the execution is one step of the brokers."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.cluster = FakeCluster({A0: (0, 1), A1: (0, 1)}, range(3))
        self.cluster.sizes = {(A0, 0): 100, (A1, 0): 50}
        self.steps = list(steps)
        self.now = 0.0
        progress = Progress()
        progress.is_watched = True
        self.execution = Execution(self.cluster.admin, progress, lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.steps.pop(0)()


def test_throttles_go_on_first_and_off_last(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    cluster = run.cluster
    run.steps = [lambda: cluster.sizes.update({(A0, 2): 60}), cluster.finish_all]
    verdicts = run.execution.run(MOVES, [], 1000, cluster.brokers_by_id, {})
    assert [each.problem for each in verdicts] == [None, None]
    assert cluster.replicas == {A0: (2, 1), A1: (1, 0)}
    assert cluster.leaders == {A0: 2, A1: 1}, "preferred leaders were elected"
    assert cluster.throttles() == {}
    assert cluster.calls[:4] == [f"configure broker {each}" for each in range(3)] + ["configure topic a"]
    assert cluster.calls[4:6] == ["move a-0", "move a-1"]
    assert "0 of 2 partitions moved, 0 B of 100 B" in capsys.readouterr().err


def test_a_broker_that_has_not_heard_of_the_end_is_asked_again() -> None:
    run = Run()
    cluster = run.cluster

    def finish() -> None:
        """As the controller says; metadata still have what the move begins with."""
        cluster.finish_all()
        cluster.replicas[A0] = (2, 1, 0)

    run.steps = [finish, lambda: None, lambda: cluster.replicas.update({A0: (2, 1)})]
    verdicts = run.execution.run(MOVES[:1], [], None, cluster.brokers_by_id, {})
    assert [each.problem for each in verdicts] == [None]
    assert run.steps == []


def test_one_that_never_hears_of_it_is_told_of() -> None:
    run = Run()
    cluster = run.cluster

    def finish() -> None:
        cluster.finish_all()
        cluster.replicas[A0] = (2, 1, 0)

    run.steps = [finish, *[lambda: None] * 60]
    (verdict,) = run.execution.run(MOVES[:1], [], None, cluster.brokers_by_id, {})
    assert verdict.problem is not None
    assert verdict.problem.startswith("on 2,1,0 instead of 2,1")


def test_a_second_run_picks_up_what_the_first_began(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    cluster = run.cluster
    cluster.admin.alter_partition_reassignments({A0: [2, 1]})
    cluster.configs[ConfigResource.topic("a")] = {"leader.replication.throttled.replicas": "0:0,0:1"}
    cluster.configs[ConfigResource.broker(1)] = {"leader.replication.throttled.rate": "10"}
    state = read_cluster(cluster.admin, None)
    run.steps = [cluster.finish_all]
    verdicts = run.execution.run(state.moves_to({}), state.moves_under_way, None, state.brokers, {})
    assert [(each.move.partition, each.problem) for each in verdicts] == [(A0, None)]
    assert cluster.throttles() == {}


def test_a_move_under_way_that_goes_elsewhere_now_is_judged_by_that() -> None:
    run = Run()
    cluster = run.cluster
    cluster.admin.alter_partition_reassignments({A0: [2, 1]})
    state = read_cluster(cluster.admin, None)
    run.steps = [cluster.finish_all]
    verdicts = run.execution.run(state.moves_to({A0: (0, 2)}), state.moves_under_way, None, state.brokers, {})
    assert [(each.move.after, each.problem) for each in verdicts] == [((0, 2), None)]


def test_what_is_refused_does_not_hold_up_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.steps = [run.cluster.finish_all]
    moves = [MOVES[0], Move(A1, (0, 1), (9, 1))]
    verdicts = run.execution.run(moves, [], None, run.cluster.brokers_by_id, {})
    assert [each.problem for each in verdicts] == [None, "refused"]
    said = capsys.readouterr().err
    assert "unknown brokers [INVALID_REPLICA_ASSIGNMENT]" in said
    assert "moves to broker 9 wait until it is up" in said


def test_an_interruption_leaves_the_moves_and_their_throttles(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    run = Run(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.execution.run(MOVES, [], 1000, run.cluster.brokers_by_id, {})
    assert set(run.cluster.moving) == {A0, A1}
    assert len(run.cluster.throttles()) == 4
    assert "the moves go on in the cluster" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_asked_some_times(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    answers = run.cluster.list_partition_reassignments

    def silence() -> None:
        def fail() -> None:
            raise RequestTimeout("no answer")

        run.cluster.list_partition_reassignments = fail  # type: ignore[method-assign,assignment]

    def recover() -> None:
        run.cluster.list_partition_reassignments = answers  # type: ignore[method-assign]
        run.cluster.finish_all()

    run.steps = [silence, lambda: None, recover]
    run.execution.run(MOVES, [], None, run.cluster.brokers_by_id, {})
    assert capsys.readouterr().err.count("no answer") == 2
    run = Run()
    run.steps = [silence, *[lambda: None] * 9]
    with pytest.raises(RequestTimeout):
        run.execution.run(MOVES, [], None, run.cluster.brokers_by_id, {})


def test_replicas_go_to_the_directories_that_a_plan_names(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.steps = [run.cluster.finish_all]
    run.execution.run(MOVES[:1], [], None, run.cluster.brokers_by_id, {(A0, 2): "/data/b", (A0, 1): "/data/c"})
    assert run.cluster.directories == {Replica("a", 0, 2): "/data/b", Replica("a", 0, 1): "/data/c"}
