"""The modules that mypyc compiles, as units that compile apart (one C file and one shared library each)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

SOURCE = Path(__file__).parent.parent / "src"


def _modules(*names: str) -> list[str]:
    """Paths, relative to the project's root, of the dotted module names that exist."""
    paths = [SOURCE / (name.replace(".", "/") + ".py") for name in names]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise FileNotFoundError(f"tools/hot.py names modules that do not exist: {', '.join(missing)}")
    return [str(path.relative_to(SOURCE.parent)) for path in paths]


def _messages(*names: str) -> list[str]:
    return _modules(*(f"braidlog.wire.generated.{name}" for name in names))


# Messages that are named nowhere here run interpreted: they are small, rare, or both (docs/adr says what was measured).
UNITS: dict[str, list[str]] = {
    "braidlog_wire": [
        *_modules(
            "braidlog.core.slices",
            "braidlog.wire.errors",
            "braidlog.wire.reader",
            "braidlog.wire.writer",
            "braidlog.wire.message",
            "braidlog.wire.apis",
            "braidlog.wire.headers",
        ),
        *_messages("registry", "headers", "api_versions", "metadata", "produce", "fetch", "list_offsets"),
    ],
    "braidlog_wire_group": _messages(
        "find_coordinator",
        "join_group",
        "sync_group",
        "heartbeat",
        "leave_group",
        "offset_commit",
        "offset_fetch",
        "consumer_group_heartbeat",
        "group_records",
        "consumer_protocol",
    ),
    "braidlog_wire_txn": _messages(
        "init_producer_id",
        "add_partitions_to_txn",
        "add_offsets_to_txn",
        "end_txn",
        "txn_offset_commit",
        "write_txn_markers",
        "offset_for_leader_epoch",
        "transaction_records",
    ),
    "braidlog_wire_cluster": _messages(
        "create_topics",
        "describe_configs",
        "describe_log_dirs",
        "describe_topic_partitions",
    ),
    "braidlog_records": _modules(
        "braidlog.wire.records.batch",
        "braidlog.wire.records.varint",
        "braidlog.wire.records.scan",
        "braidlog.wire.records.encoding",
        "braidlog.wire.records.append_policy",
        "braidlog.wire.records.reading",
        "braidlog.wire.records.builder",
        "braidlog.wire.records.control_records",
        "braidlog.wire.records.filtering",
        "braidlog.wire.records.validation",
        "braidlog.wire.records.key_hash",
        "braidlog.wire.records.columns",
        "braidlog.wire.records.columns_parsing",
        "braidlog.wire.records.columns_slice",
        "braidlog.wire.records.columns_building",
        "braidlog.wire.records.columns_partitioning",
    ),
    "braidlog_storage": _modules(
        "braidlog.storage.crash_points",
        "braidlog.storage.files",
        "braidlog.storage.log.batch_walk",
        "braidlog.storage.handles",
        "braidlog.storage.index.index_file",
        "braidlog.storage.index.offset_index",
        "braidlog.storage.index.time_index",
        "braidlog.storage.index.transaction_index",
        "braidlog.storage.log.log_segment",
        "braidlog.storage.producers.verification",
        "braidlog.storage.producers.producer_state_manager",
        "braidlog.storage.log.leader_epoch_file_cache",
        "braidlog.storage.log.local_log",
        "braidlog.storage.log.segment_recovery",
        "braidlog.storage.log.append",
        "braidlog.storage.log.read",
        "braidlog.storage.log.unified_log",
    ),
    "braidlog_cleaner": _modules(
        "braidlog.storage.cleaner.offset_map",
        "braidlog.storage.cleaner.cleaned_transaction_metadata",
        "braidlog.storage.cleaner.source_segments",
        "braidlog.storage.cleaner.cleaner",
    ),
    "braidlog_broker": _modules(
        "braidlog.metrics",
        "braidlog.net.exchange",
        "braidlog.net.round",
        "braidlog.net.fair_queue",
        "braidlog.net.memory",
        "braidlog.net.channel",
        "braidlog.net.connection",
        "braidlog.replication.topic_metrics",
        "braidlog.replication.delayed_operation",
        "braidlog.replication.progress",
        "braidlog.replication.follower_session",
        "braidlog.replication.pending_ack",
        "braidlog.replication.partition",
        "braidlog.replication.partition_registry",
        "braidlog.replication.group_commit",
        "braidlog.replication.follower",
        "braidlog.replication.fetcher",
        "braidlog.broker.interbroker.replica_fetcher",
        "braidlog.broker.requests.dispatch",
        "braidlog.broker.requests.error_mapping",
        "braidlog.broker.requests.time_slicing",
        "braidlog.broker.handlers.records.fetch_session",
        "braidlog.broker.handlers.records.transaction_verification",
        "braidlog.broker.handlers.records.produce",
        "braidlog.broker.handlers.records.partition_read",
        "braidlog.broker.awaited_roles",
        "braidlog.broker.handlers.records.fetch",
    ),
    "braidlog_net_outbound": _modules(
        "braidlog.net.outbound.transport",
        "braidlog.net.outbound.frame_reader",
        "braidlog.net.outbound.pipelined_connection",
    ),
    "braidlog_client_consumer": _modules(
        "braidlog.client.consumer.partition_state",
        "braidlog.client.consumer.record",
        "braidlog.client.consumer.fetch.batch_reader",
        "braidlog.client.consumer.fetch.completed_fetch",
        "braidlog.client.consumer.fetch.fetch_buffer",
    ),
    "braidlog_client_producer": _modules(
        "braidlog.client.producer.accumulator.producer_batch",
        "braidlog.client.producer.delivery",
        "braidlog.client.producer.accumulator.buffer_pool",
        "braidlog.client.producer.accumulator.pending_sends",
        "braidlog.client.producer.accumulator.partition_queue",
        "braidlog.client.producer.accumulator.producer_id_state",
        "braidlog.client.producer.accumulator.record_accumulator",
        "braidlog.client.producer.send_path",
        "braidlog.client.producer.accumulator.batch_encoder",
        "braidlog.client.producer.produce_requests",
        "braidlog.client.producer.direct_path",
    ),
    "braidlog_cli": _modules("braidlog.cli.records.line_batches", "braidlog.cli.records.record_text"),
}


def add_docstrings(c_sources: Iterable[str]) -> None:
    """Write the docstrings, which mypyc leaves out, into the C that it generated.

    Without them `help(Producer.send)` would be empty. mypyc gives every method and class a text that holds its
    signature alone; the docstring is put behind it.
    """
    known = _docstrings()
    for path in map(Path, c_sources):
        text = path.read_text()
        documented = _CLASS_DOC.sub(
            partial(_with_docstring, known), _METHOD_DOC.sub(partial(_with_docstring, known), text)
        )
        if documented != text:
            path.write_text(documented)


# All before the text of a method or a class, in which its name is; and the text, of its signature.
_METHOD_DOC: Final = re.compile(
    r'(?=\(PyCFunction\)CPyPy_(\w+),)(\(PyCFunction\)\w+,\n [^\n]*?PyDoc_STR\()("(?:[^"\\]|\\.)*"|NULL)\)'
)
_CLASS_DOC: Final = re.compile(
    r'(?=CPyType_(\w+)_template_ )(\w+ = \{[^;]*?\.tp_doc = PyDoc_STR\()("(?:[^"\\]|\\.)*"|NULL)\)'
)


def _with_docstring(known: dict[str, str], found: re.Match[str]) -> str:
    name, before, signature = found.groups()
    if name not in known:
        return found[0]
    # C takes literals one behind the other for one, and needs nothing escaped but these.
    lines = known[name].replace("\\", r"\\").replace('"', r"\"").splitlines()
    doc = " ".join([*(f'"{line}\\n"' for line in lines[:-1]), f'"{lines[-1]}"'])
    return f"{before}{doc if signature == 'NULL' else f'{signature} {doc}'})"


def _docstrings() -> dict[str, str]:
    """Of every hot function, class and method, by the name that mypyc gives it in C, in full."""
    found: dict[str, str] = {}
    for path in (path for unit in UNITS.values() for path in unit):
        module = path.removeprefix("src/").removesuffix(".py").replace("/", "___")
        for node in ast.parse((SOURCE.parent / path).read_text()).body:
            _note(found, module, node)
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    _note(found, f"{module}___{node.name}", method)
    return found


def _note(found: dict[str, str], owner: str, node: ast.stmt) -> None:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        doc = ast.get_docstring(node)
        if doc is not None:
            found[f"{owner}___{node.name}"] = doc
