"""The brokers of a cluster among themselves: whether they reach each other, their clocks, racks and ZooKeeper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from braidlog.cli.checks.finding import Finding, listing, ok, problem, warning
from braidlog.cli.watching.metrics_pages import MetricsPage
from braidlog.client.admin.cluster_description import BrokerDescription
from braidlog.client.cluster_view import TopicView

FETCHER_UNREACHABLE: Final = "braidlog_replica_fetcher_unreachable_seconds"
CONTROLLER_UNREACHABLE: Final = "braidlog_controller_unreachable_seconds"
# What these checks look for on metrics pages.
NAMES: Final = (FETCHER_UNREACHABLE, CONTROLLER_UNREACHABLE)

# A leader that has just moved, or a broker that starts, is not reached for a moment.
_MOMENT_S: Final = 3.0
# Clocks that NTP keeps differ by milliseconds; from here on timestamps and time-outs of several brokers contradict.
_APART_S: Final = 1.0
_FAR_APART_S: Final = 60.0


def check_unread(unread: Mapping[int, str]) -> list[Finding]:
    """Whose metrics page was not read: what it would have told is not known."""
    return [
        warning(
            "metrics",
            f"the metrics page of broker {broker_id} was not read ({why}): its clock, whom it reaches and why its "
            "replicas lag is not known",
            "run the doctor where the page is reachable, or name its address with --metrics HOST:PORT",
        )
        for broker_id, why in sorted(unread.items())
    ]


def check_reach(pages: Mapping[int, MetricsPage], up: Mapping[int, BrokerDescription]) -> list[Finding]:
    """Whether brokers reach each other at the addresses that they have registered for each other."""
    name = "between brokers"
    findings: list[Finding] = []
    for broker_id, page in sorted(pages.items()):
        # By leader, for as long as any fetcher says.
        unreached: dict[int, float] = {}
        for sample in page.samples(FETCHER_UNREACHABLE):
            leader = int(sample.labels["leader"])
            unreached[leader] = max(unreached.get(leader, 0.0), sample.value)
        findings += _not_reached(f"broker {broker_id}", unreached, up)
        by_controller = {int(each.labels["broker_id"]): each.value for each in page.samples(CONTROLLER_UNREACHABLE)}
        findings += _not_reached(f"the controller, broker {broker_id},", by_controller, up)
    if not findings and len(pages) > 1:
        findings.append(ok(name, f"{len(pages)} brokers reach those that they follow, and the controller all"))
    return findings


def _not_reached(who: str, unreached: Mapping[int, float], up: Collection[int]) -> list[Finding]:
    return [
        problem(
            "between brokers",
            f"{who} has not reached broker {other} for {duration(seconds)}, which is up",
            f"see that what broker {other} advertises for its inter.broker.listener.name resolves and is open from "
            "that machine; the log there says what fails",
        )
        for other, seconds in sorted(unreached.items())
        if seconds > _MOMENT_S and other in up
    ]


def check_clocks(pages: Mapping[int, MetricsPage]) -> list[Finding]:
    name = "clocks"
    offsets = {each: clock for each, page in sorted(pages.items()) if (clock := page.clock) is not None}
    if len(offsets) < 2:
        return []
    behind = min(offsets, key=lambda each: offsets[each][0])
    ahead = max(offsets, key=lambda each: offsets[each][0])
    apart = offsets[ahead][0] - offsets[behind][0]
    # What the measuring itself may be off by.
    surely = apart - offsets[ahead][1] - offsets[behind][1]
    if surely <= _APART_S:
        return [ok(name, f"those of {len(offsets)} brokers agree to {max(apart, 0.001):.3f} s")]
    report = problem if surely > _FAR_APART_S else warning
    return [
        report(
            name,
            f"that of broker {ahead} is {apart:.1f} s ahead of that of broker {behind}: timestamps, retention and "
            "logins by token depend on it",
            "keep the clocks of all brokers by NTP (`chronyc tracking`, `timedatectl`)",
        )
    ]


def check_racks(brokers: Iterable[BrokerDescription], topics: Sequence[TopicView]) -> list[Finding]:
    name = "racks"
    racks = {each.broker_id: each.rack for each in brokers}
    named = Counter(rack for rack in racks.values() if rack is not None)
    if not named:
        return []
    without = [str(each) for each, rack in sorted(racks.items()) if rack is None]
    findings: list[Finding] = []
    if without:
        findings.append(
            warning(
                name,
                f"brokers without one, while others have: {listing(without)}; topics cannot be spread over racks",
                "set broker.rack of these brokers",
            )
        )
    elif len(named) > 1 and max(named.values()) > min(named.values()):
        counts = ", ".join(f"{rack} {count}" for rack, count in sorted(named.items()))
        findings.append(
            warning(
                name,
                f"uneven: {counts} brokers; those of the smaller racks hold more replicas than the others",
                "have as many brokers in each rack",
            )
        )
    together = _in_one_rack(racks, topics) if len(named) > 1 else []
    if together:
        findings.append(
            warning(
                name,
                f"all replicas are in one rack, and fail with it: {listing(together)}",
                "move some of them with a reassignment",
            )
        )
    if not findings:
        findings.append(ok(name, f"{len(racks)} brokers in {len(named)}, evenly"))
    return findings


def _in_one_rack(racks: Mapping[int, str | None], topics: Sequence[TopicView]) -> list[str]:
    """Partitions of several replicas, on brokers whose racks are known."""
    return [
        f"{topic.name}-{partition.index}"
        for topic in topics
        for partition in topic.partitions
        if len(partition.replicas) > 1
        and all(racks.get(each) is not None for each in partition.replicas)
        and len({racks[each] for each in partition.replicas}) == 1
    ]


def check_ensemble(connects: Mapping[int, str | None]) -> list[Finding]:
    """`zookeeper.connect` of brokers."""
    name = "ZooKeeper"
    by_text: dict[str, list[int]] = {}
    for broker_id, text in sorted(connects.items()):
        if text:
            by_text.setdefault(text, []).append(broker_id)
    findings: list[Finding] = []
    for text in by_text:
        servers = [each for each in text.partition("/")[0].split(",") if each.strip()]
        if len(servers) == 1:
            findings.append(
                warning(
                    name,
                    f"zookeeper.connect names one server ({servers[0]}): while it is down no leader is elected and "
                    "nothing can be changed",
                    "run an ensemble of three or five, and name all of them",
                )
            )
        elif len(servers) % 2 == 0:
            findings.append(
                warning(
                    name,
                    f"zookeeper.connect names {len(servers)} servers: as many may fail as of {len(servers) - 1}",
                    "run an odd number of servers, three or five",
                )
            )
        else:
            findings.append(ok(name, f"zookeeper.connect names {len(servers)} servers"))
    if len(by_text) > 1:
        texts = "; ".join(f"{listing(map(str, brokers))}: {text}" for text, brokers in by_text.items())
        findings.append(
            warning(name, f"brokers do not name the same servers: {texts}", "make zookeeper.connect the same")
        )
    return findings


def duration(seconds: float) -> str:
    """For a sentence: 40 s, 12 min, 3 h, 2 days."""
    for most, each, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds / each:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"
