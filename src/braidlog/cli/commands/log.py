"""`braidlog log dump|verify|rebuild-index|export|import`: what lies in a data directory; needs no broker."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from braidlog.cli.options import add_output, offset_number, positive
from braidlog.cli.output import Progress, remark, show
from braidlog.cli.topic_archives import add_export, add_import
from braidlog.core.clock import SystemClock
from braidlog.core.errors import UserError
from braidlog.storage.files import OsFiles
from braidlog.storage.inspection.dump import Entry, dump_file, entry_text
from braidlog.storage.inspection.rebuild import rebuild_index
from braidlog.storage.inspection.verify import VerifyReport, partition_directories, verify

# What a partition's directory is dumped as: its records' files, in offset order.
_LOG_FILES: Final = ".log"
_MEGABYTE: Final = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    dump = verbs.add_parser("dump", help="list what is in a file, batch by batch or entry by entry")
    dump.add_argument(
        "paths",
        nargs="+",
        metavar="FILE",
        help="a .log, .index, .timeindex, .txnindex, .snapshot, checkpoint or properties file; "
        "a partition's directory stands for its .log files",
    )
    dump.add_argument("--records", action="store_true", help="also the records of each batch")
    dump.add_argument("--from-offset", metavar="N", type=offset_number, default=0, help="leave out batches before this")
    dump.add_argument("--max-entries", metavar="N", type=positive, help="stop after so many lines")
    dump.set_defaults(run=run_dump)

    check = verbs.add_parser("verify", help="check every batch and index of partitions; changes nothing")
    check.add_argument("--records", action="store_true", help="also decompress and decode every record")
    check.set_defaults(run=run_verify)

    rebuild = verbs.add_parser("rebuild-index", help="write the indexes of partitions again, from their batches")
    rebuild.set_defaults(run=run_rebuild)

    add_export(verbs.add_parser("export", help="a topic's segments as an archive, from a stopped broker"))
    add_import(verbs.add_parser("import", help="an archive's segments as a topic, into a stopped broker"))

    for verb in (check, rebuild):
        verb.add_argument(
            "paths", nargs="+", metavar="DIR", help="a partition's directory, or a data directory for all in it"
        )
    for verb in (dump, check, rebuild):
        add_output(verb)


def run_dump(options: argparse.Namespace) -> int:
    files = OsFiles()
    printed = problems = 0
    for path in _files_of(options.paths):
        if options.output == "table":
            print(path)
        for entry in dump_file(files, path, records=options.records):
            if _ends_before(entry, options.from_offset):
                continue
            if printed == options.max_entries:
                return 1 if problems else 0
            printed += 1
            problems += entry["type"] == "problem" or entry.get("is_valid") is False
            if options.output == "json":
                print(json.dumps({"file": path, **entry}, ensure_ascii=False))
            else:
                print(entry_text(entry))
    if problems:
        remark(f"{problems} places are damaged; `braidlog log verify` names the offsets that are lost")
    return 1 if problems else 0


def run_verify(options: argparse.Namespace) -> int:
    files = OsFiles()
    progress = Progress()
    reports: list[VerifyReport] = []
    for directory in _directories_of(options.paths):
        reports.append(
            verify(files, directory, records=options.records, progress=_ProgressReport(progress, "checking"))
        )
    progress.clear()
    if options.output == "json":
        show([{**asdict(report), "is_sound": report.is_sound} for report in reports], "json")
    else:
        for report in reports:
            _print_report(report)
    broken = [report for report in reports if not report.is_sound]
    if broken:
        remark(
            f"{len(broken)} of {len(reports)} partitions are damaged; indexes come back with `braidlog log "
            "rebuild-index`, lost records from another replica or a backup"
        )
    return 1 if broken else 0


def run_rebuild(options: argparse.Namespace) -> int:
    files = OsFiles()
    progress = Progress()
    rows: list[dict[str, Any]] = []
    for directory in _directories_of(options.paths):
        listener = _ProgressReport(progress, "rebuilding")
        rows += [asdict(segment) for segment in rebuild_index(files, directory, SystemClock(), progress=listener)]
    progress.clear()
    columns = ("path", "size", "index_entries", "time_index_entries", "aborted_transactions", "problem")
    show(rows, options.output, columns)
    cut = [row for row in rows if row["problem"] is not None]
    if cut:
        remark(
            f"{len(cut)} segments are damaged: their indexes end where the damage begins; "
            "`braidlog log verify` names what is lost"
        )
    return 1 if cut else 0


class _ProgressReport:
    """The progress of storage's work, as a line for people."""

    def __init__(self, progress: Progress, verb: str) -> None:
        self._progress = progress
        self._verb = verb

    def __call__(self, done: int, total: int, path: str) -> None:
        self._progress.show(f"{self._verb} {path}: {done / _MEGABYTE:.0f} of {total / _MEGABYTE:.0f} MB")


def _files_of(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        names = sorted(name for name in os.listdir(path) if name.endswith(_LOG_FILES))
        if not names:
            raise UserError(f"{path} holds no {_LOG_FILES} files: name a file, or a partition's directory")
        yield from (os.path.join(path, name) for name in names)


def _directories_of(paths: Iterable[str]) -> list[str]:
    files = OsFiles()
    return [directory for path in paths for directory in partition_directories(files, path)]


def _ends_before(entry: Entry, offset: int) -> bool:
    last = entry.get("last_offset", entry.get("offset")) if entry["type"] in ("batch", "record") else None
    return isinstance(last, int) and last < offset


def _print_report(report: VerifyReport) -> None:
    state = "sound" if report.is_sound else "DAMAGED"
    print(
        f"{report.directory}: {state}, {report.segments} segments, {report.batches} batches, {report.records} records, "
        f"{report.bytes} bytes, offsets {report.start_offset} to {report.end_offset}"
    )
    for finding in report.findings:
        where = "" if finding.message.startswith(finding.path) else f"{finding.path}: "
        print(f"  {finding.severity}: {where}{finding.message}")
