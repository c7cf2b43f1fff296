"""`braidlog reassign plan|execute|status|verify|cancel`: move replicas between brokers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from braidlog.cli.options import add_connection, add_output, broker_number, byte_rate, connect, path_name, shortened
from braidlog.cli.output import Progress, confirm, remark_failure, report, show, size_text
from braidlog.cli.reassignment.execution import Execution
from braidlog.cli.reassignment.kafka_json import FilePlan, parse_plan, plan_text
from braidlog.cli.reassignment.moves import (
    ClusterState,
    Move,
    Verdict,
    cancel,
    move_under_way,
    read_cluster,
    read_sizes,
    verify,
)
from braidlog.cli.reassignment.planner import plan_moves
from braidlog.cli.reassignment.throttles import take_off
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError

_EPILOG: Final = """\
The brokers of --brokers shall hold all replicas, evenly; without it, all brokers that are up. A new broker gets its
share when it is among them, one that leaves keeps nothing when it is not (--without). As few replicas move as can be,
no two of a partition to the same rack (broker.rack), nor host, where others have room.

`plan` shows what would move, `execute` moves it, and waits until it is done. Killed or interrupted meanwhile, the moves
go on; the same command picks them up. At the end the throttles are taken off, and preferred leaders elected.

examples:
  braidlog reassign plan --brokers 0,1,2,3                   broker 3 is new
  braidlog reassign execute --brokers 0,1,2,3 --throttle 50MB
  braidlog reassign execute --without 2 --throttle 50MB      broker 2 is to leave
  braidlog reassign plan --topics orders,users --save plan.json
  braidlog reassign execute --plan plan.json                 the file format of kafka-reassign-partitions
  braidlog reassign status                                   what is under way
  braidlog reassign cancel
"""
_COLUMNS: Final = ("topic", "partition", "before", "after", "copies")


class _Planned(NamedTuple):
    state: ClusterState
    moves: list[Move]
    file: FilePlan | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    plan = verbs.add_parser("plan", help="show what would move, and how many bytes")
    _add_selection(plan)
    plan.add_argument("--save", metavar="FILE", type=path_name, help="write the plan, as JSON of Kafka's own tool")
    plan.add_argument("--save-current", metavar="FILE", type=path_name, help="write where all of it is now, to go back")
    plan.set_defaults(run=run_plan)

    execute = verbs.add_parser("execute", help="move replicas, and wait until they are there")
    _add_selection(execute)
    execute.add_argument(
        "--throttle", metavar="SIZE", type=byte_rate, help="bytes a second that each broker may send, and receive"
    )
    execute.add_argument("--yes", action="store_true", help="do not ask")
    execute.set_defaults(run=run_execute)

    status = verbs.add_parser("status", help="moves that are under way")
    _add_topics(status)
    status.set_defaults(run=run_status)

    verifying = verbs.add_parser("verify", help="whether moves are done; then throttles that are left are taken off")
    verifying.add_argument("--plan", metavar="FILE", type=path_name, help="the moves of this plan (default: any)")
    verifying.set_defaults(run=run_verify)

    cancelling = verbs.add_parser("cancel", help="stop moves that are under way: what came is dropped")
    _add_topics(cancelling)
    cancelling.add_argument("--yes", action="store_true", help="do not ask")
    cancelling.set_defaults(run=run_cancel)

    for verb in (plan, execute, status, verifying, cancelling):
        add_connection(verb)
        add_output(verb)


def _add_selection(verb: argparse.ArgumentParser) -> None:
    where = verb.add_mutually_exclusive_group()
    where.add_argument(
        "--brokers", metavar="IDS", type=broker_numbers, help="those that shall hold all of it (default: all)"
    )
    where.add_argument("--without", metavar="IDS", type=broker_numbers, help="all brokers that are up but these")
    where.add_argument("--plan", metavar="FILE", type=path_name, help="what this file says; - is standard input")
    _add_topics(verb)
    verb.add_argument("--disable-rack-aware", action="store_true", help="do not look at racks, nor at hosts")


def _add_topics(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--topics", metavar="TOPIC", type=topic_names, help="only of these, by commas (default: all)")


def broker_numbers(text: str) -> list[int]:
    return list(dict.fromkeys(broker_number(each) for each in text.split(",")))


def topic_names(text: str) -> list[str]:
    names = list(dict.fromkeys(each.strip() for each in text.split(",")))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{shortened(text)}: give names of topics, such as orders,users")
    return names


def run_plan(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        planned = _plan(admin_over(cluster), options)
    if options.save:
        _write(options.save, plan_text({each.partition: each.after for each in planned.moves}))
    if options.save_current:
        _write(options.save_current, plan_text({each.partition: each.before for each in planned.moves}))
    _show(planned.moves, options.output)
    return 0


def run_execute(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        planned = _plan(admin, options)
        moves, under_way = planned.moves, planned.state.moves_under_way
        if moves:
            if options.output != "json":
                _show(moves, options.output)
            copies = sum(len(each.adding) for each in moves)
            confirm(f"change {len(moves)} partitions and copy {copies} replicas", options.yes)
        log_dirs = {} if planned.file is None else planned.file.log_dirs
        if not moves and not under_way and not log_dirs:
            taken = take_off(admin)
            left = "; throttles that were left over are taken off" if taken else ""
            report(f"nothing has to move{left}", {"moved": 0, "failed": 0, "throttles_removed": taken}, options.output)
            return 0
        if under_way and options.output != "json":
            print(f"{len(under_way)} partitions are being moved already: they are waited for as well")
        rate = None if options.throttle is None else max(int(options.throttle), 1)
        verdicts = Execution(admin, Progress()).run(moves, under_way, rate, planned.state.brokers, log_dirs)
    return _conclude(verdicts, options.output)


def _conclude(verdicts: Sequence[Verdict], output: str) -> int:
    failed = [each for each in verdicts if each.problem is not None]
    moved = len(verdicts) - len(failed)
    if output == "json":
        print(
            json.dumps({"moved": moved, "failed": len(failed), "partitions": [_verdict_row(each) for each in failed]})
        )
    else:
        for each in failed:
            print(f"{each.move.partition}: {each.problem}")
        print(f"{moved} partition{'' if moved == 1 else 's'} moved" + (f", {len(failed)} not" if failed else ""))
    return 1 if failed else 0


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    place = verdict.move.partition
    return {"topic": place.topic, "partition": place.partition, "problem": verdict.problem}


def run_status(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        moves = _under_way(admin, options)
        held = read_sizes(admin, None, [each.partition for each in moves]) if moves else {}
    rows: list[dict[str, Any]] = []
    for move in moves:
        copied = sum(held.get((move.partition, each), 0) for each in move.adding)
        whole = max((held.get((move.partition, each), 0) for each in move.before), default=0) * len(move.adding)
        row: dict[str, Any] = {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "before": list(move.before),
            "after": list(move.after),
        }
        if options.output == "json":
            rows.append(row | {"copied_bytes": copied, "bytes": whole})
        else:
            rows.append(row | {"copied": f"{size_text(min(copied, whole))} of {size_text(whole)}"})
    show(rows, options.output, ("topic", "partition", "before", "after", "copied"))
    return 0


def run_verify(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        if options.plan:
            wanted = _read_plan(options.plan).replicas
            verdicts = verify(admin, [Move(each, after, after) for each, after in sorted(wanted.items())])
        else:
            verdicts = verify(admin, _all_under_way(admin))
        taken = take_off(admin)
    if options.output != "json":
        if taken:
            print("throttles of moves that are done are taken off")
        if not verdicts:
            print("no moves are under way")
            return 0
    return _conclude(verdicts, options.output)


def run_cancel(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        admin = admin_over(cluster)
        moves = _under_way(admin, options)
        if moves:
            confirm(f"cancel the moves of {len(moves)} partitions", options.yes)
        refused = cancel(admin, moves)
        for problem in refused.values():
            remark_failure(problem)
        take_off(admin)
    cancelled = len(moves) - len(refused)
    report(
        f"{cancelled} move{'' if cancelled == 1 else 's'} cancelled",
        {"cancelled": cancelled, "failed": len(refused)},
        options.output,
    )
    return 1 if refused else 0


def _plan(admin: Admin, options: argparse.Namespace) -> _Planned:
    file = _read_plan(options.plan) if options.plan else None
    if file is not None and options.topics:
        file = FilePlan(
            {each: after for each, after in file.replicas.items() if each.topic in options.topics},
            {each: path for each, path in file.log_dirs.items() if each[0].topic in options.topics},
        )
    topics = options.topics if file is None else sorted({each.topic for each in file.replicas})
    state = read_cluster(admin, topics)
    if file is not None:
        missing = next((each for each in sorted(file.replicas) if each not in state.replicas), None)
        if missing is not None:
            raise UnknownTopicOrPartitionError(f"there is no partition {missing}, which {options.plan} names")
        return _Planned(state, state.moves_to(file.replicas), file)
    chosen = options.brokers or [each for each in state.brokers if each not in (options.without or ())]
    unknown = [each for each in chosen if each not in state.brokers]
    if unknown:
        raise UserError(f"broker {', '.join(map(str, unknown))} is not up; up are {_listed(sorted(state.brokers))}")
    places = {each: state.brokers[each] for each in chosen}
    planned = plan_moves(state.replicas, places, state.sizes, rack_aware=not options.disable_rack_aware)
    return _Planned(state, state.moves_to(planned), None)


def _under_way(admin: Admin, options: argparse.Namespace) -> list[Move]:
    return [each for each in _all_under_way(admin) if not options.topics or each.partition.topic in options.topics]


def _all_under_way(admin: Admin) -> list[Move]:
    return [move_under_way(each, moving) for each, moving in admin.list_partition_reassignments().items()]


def _show(moves: Sequence[Move], output: str) -> None:
    copies, size = sum(len(each.adding) for each in moves), sum(each.bytes for each in moves)
    rows: list[dict[str, Any]] = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "before": list(each.before),
            "after": list(each.after),
            **(
                {"bytes": each.bytes}
                if output == "json"
                else {"copies": size_text(each.bytes) if each.adding else None}
            ),
        }
        for each in moves
    ]
    if output == "json":
        print(json.dumps({"replicas": copies, "bytes": size, "moves": rows}, indent=2, ensure_ascii=False))
        return
    if not moves:
        print("nothing has to move")
        return
    show(rows, output, _COLUMNS)
    print(f"{len(moves)} partitions change; {copies} replicas are copied, {size_text(size)}")


def _read_plan(path: str) -> FilePlan:
    if path == "-":
        return parse_plan(sys.stdin.read(), "standard input")
    return parse_plan(Path(path).read_text(encoding="utf-8"), path)


def _write(path: str, text: str) -> None:
    Path(path).write_text(text + "\n", encoding="utf-8")


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
