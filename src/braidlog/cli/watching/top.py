"""`braidlog top`: what a cluster does right now; live on a terminal, once for scripts."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Final

from braidlog.cli.options import add_connection, add_output, connect, seconds
from braidlog.cli.output import show_one
from braidlog.cli.watching.metrics_pages import MetricsPages, add_metrics
from braidlog.client.admin.admin import admin_over
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError

if TYPE_CHECKING:
    from braidlog.cli.watching.cluster_sample import ClusterSampler

_INTERVAL_S: Final = 2.0
# A broker that does not answer must not hold up the rest.
_ANSWER_S: Final = 5.0
_EPILOG: Final = """\
Brokers (* is the controller) with the bytes and records that they take and give, what they copy from leaders, requests
and the share of time without work; replicas that are not in sync; groups by lag, and how it changes; busy topics.
On a terminal it is drawn anew every --interval seconds until q or Ctrl-C; elsewhere, or with --once, two looks are
taken, and what happened between them is printed.

Any Kafka cluster can be watched. Bytes, requests and idle time stand on the metrics pages of braidlog's brokers, which
are found by their braidlog.http.listen, as far as that is reachable from here, or named with --metrics; `-` is what is
not known.

examples:
  braidlog top --bootstrap broker1:9092
  braidlog top --once --interval 10 --output json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--once", action="store_true", help="two looks, and what happened between them")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=_INTERVAL_S, help="between two looks (default 2)"
    )
    add_metrics(parser)
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from braidlog.cli.watching.cluster_sample import ClusterSampler, report
    from braidlog.cli.watching.top_screen import is_watched, screen_lines

    with connect(options) as cluster:
        answer_s = min(cluster.timeout_s, _ANSWER_S)
        cluster.metadata([])
        pages = MetricsPages(cluster.cluster_id, options.metrics, answer_s)
        sampler = ClusterSampler(admin_over(cluster).within(answer_s), pages)
        if not options.once and options.output != "json" and is_watched():
            return _watch(sampler, options.interval)
        before = sampler.take()
        time.sleep(options.interval)
        row = report(before, sampler.take())
    if options.output == "json":
        show_one(row, "json")
    else:
        print("\n".join(screen_lines(row)))
    return 0


def _watch(sampler: ClusterSampler, interval_s: float) -> int:
    """Until it is ended by a key; an interruption ends it as well, and is how it ends well."""
    from braidlog.cli.watching.cluster_sample import report
    from braidlog.cli.watching.top_screen import drawn_on, screen_lines

    with drawn_on() as screen:
        try:
            before = sampler.take()
            row = report(before, before)
            problem = ""
            while True:
                clock = time.strftime("%H:%M:%S")
                head = problem or f"braidlog top  {clock}  every {interval_s:g} s  q ends it"
                screen.draw([head, *screen_lines(row, screen.height - 1)])
                if not screen.wait(interval_s):
                    return 0
                try:
                    now = sampler.take()
                    row, before, problem = report(before, now), now, ""
                except (BraidlogError, ProtocolError) as failure:
                    problem = problem or f"no answer since {clock}: {failure}"
        except KeyboardInterrupt:
            return 0
