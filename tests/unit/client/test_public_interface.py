"""What programs see of the client library: the same compiled and uncompiled, documented, and nothing else."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client.arrow.table_delivery import PartitionOutcome, TableDeliveryError, TableOutcome
from braidlog.core.errors import StorageFault

ROOT = Path(__file__).parent.parent.parent.parent
SOURCE = Path(braidlog.__file__).parent.parent
# Who waits for brokers, or keeps a thread, cannot be in two places.
CLIENTS = ("Admin", "AsyncConsumer", "Consumer", "Delivery", "ParallelConsumer", "Producer")


@pytest.fixture(scope="module", params=["as built", "uncompiled"])
def reported(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What `tests.support.public_classes` finds out."""
    return facts(pure=request.param == "uncompiled")


@cache
def facts(pure: bool) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}", "BRAIDLOG_PURE": "1" if pure else "0"}
    if not pure and os.environ.get("BRAIDLOG_PURE") != "1":
        del environment["BRAIDLOG_PURE"]
    command = [sys.executable, "-W", "error", "-m", "tests.support.public_classes"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def is_error(name: str) -> bool:
    import braidlog.errors

    return name in braidlog.errors.__all__


def test_values_survive_copies_pickles_and_other_processes(reported: dict[str, Any]) -> None:
    assert "ConsumerRecord" in reported["values"]
    assert len(reported["values"]) > 200
    for name, value in reported["values"].items():
        assert value["same"], f"{name} comes back as something else"
        # Errors are what they are by identity, as everywhere in Python.
        if not is_error(name) and name not in ("Results", "RebalanceListener"):
            assert value["equal"], name
            assert value["hashed"], name


def test_attributes_of_errors_survive(reported: dict[str, Any]) -> None:
    assert reported["values"]["PoisonRecordError"]["attributes"] == {
        "args": "('it went wrong; try again',)",
        "partition": "TopicPartition(topic='orders', partition=1)",
        "offset": "5",
        "resume_at": "7",
    }
    assert reported["values"]["HandlerFailedError"]["attributes"]["record"].startswith("ConsumerRecord(orders-1 at 5")


def test_clients_refuse_to_be_copied_in_words(reported: dict[str, Any]) -> None:
    for name in CLIENTS:
        refusals = reported["clients"][name]["refusals"]
        assert len(refusals) == 3, name
        assert all("cannot be copied or pickled" in each or "copy or pickle" in each for each in refusals), name


def test_everything_has_a_repr_without_secrets(reported: dict[str, Any]) -> None:
    shown = {name: each["repr"] for name, each in [*reported["values"].items(), *reported["clients"].items()]}
    for name, text in shown.items():
        assert " object at 0x" not in text, name
        assert "hush" not in text, name
    assert shown["Producer"] == "<Producer of 127.0.0.1:1>"
    assert shown["Consumer, closed"] == "<Consumer of 127.0.0.1:1, group shop, closed>"
    assert "password 1" not in shown["ScramUpsertion"]
    assert "hmac 1" not in shown["DelegationToken"]


def test_every_public_method_has_help(reported: dict[str, Any]) -> None:
    for name, each in reported["classes"].items():
        if not is_error(name):
            assert each["doc"], name
        for method, (doc, _) in each["methods"].items():
            assert doc, f"{name}.{method}"
    assert reported["classes"]["Producer"]["methods"]["send"][0].startswith("Hand a record over")
    assert reported["classes"]["Producer"]["methods"]["send"][1] == [
        "self", "topic", "value", "key", "partition", "timestamp_ms", "headers", "on_delivery",
    ]  # fmt: skip


def test_compiled_and_uncompiled_say_the_same() -> None:
    built, pure = dict(facts(pure=False)), dict(facts(pure=True))
    assert not pure.pop("compiled")
    built.pop("compiled")
    for part in built:
        for name in built[part]:
            assert built[part][name] == pure[part][name], name


def test_records_take_keywords(reported: dict[str, Any]) -> None:
    record = braidlog.ConsumerRecord(topic="t", partition=0, offset=1, timestamp=2, key=None, value=b"v")
    assert record.headers == ()
    assert pickle.loads(pickle.dumps(record)) == record


def test_errors_of_other_layers_pickle_too() -> None:
    place = braidlog.TopicPartition("t", 0)
    outcome = TableOutcome({place: PartitionOutcome(failed=2, error=braidlog.ClosedError("closed"))})
    problem = TableDeliveryError(outcome)
    double = pickle.loads(pickle.dumps(problem))
    assert str(double) == str(problem)
    assert double.outcome.partitions[place].failed == 2
    fault = pickle.loads(pickle.dumps(StorageFault("/data", "it is full", OSError(28, "full"))))
    assert (fault.directory, fault.reason, str(fault)) == ("/data", "it is full", "data directory /data: it is full")


# Names


def test_the_errors_need_no_import_of_their_own() -> None:
    program = "import braidlog; print(braidlog.errors.TopicAlreadyExistsError.__name__)"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("TopicAlreadyExistsError\n", "")


def test_a_star_import_brings_what_is_exported() -> None:
    names: dict[str, object] = {}
    exec("from braidlog import *", names)
    assert {"Producer", "Consumer", "Admin", "NewTopic", "ClientError", "UserError", "ProtocolError"} <= set(names)
    assert set(braidlog.__all__) <= set(names)


@pytest.mark.parametrize("module", ["braidlog", "braidlog.client", "braidlog.client.admin", "braidlog.errors"])
def test_all_names_are_there_and_shown(module: str) -> None:
    loaded = importlib.import_module(module)
    assert sorted(set(loaded.__all__)) == sorted(loaded.__all__)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
    assert set(loaded.__all__) <= set(dir(loaded))
    with pytest.raises(AttributeError, match="Produzer"):
        loaded.Produzer  # noqa: B018


def documented() -> str:
    pages = sorted((ROOT / "docs" / "client").glob("*.md"))
    return "\n".join(page.read_text() for page in pages)


def test_what_is_public_is_documented() -> None:
    pages = documented()
    missing = [
        f"{name}.{member}"
        for name in (*CLIENTS, "ConsumerRecord", "RebalanceListener")
        for member in dir(getattr(braidlog, name))
        if not member.startswith("_") and not re.search(rf"`[^`\n]*\b{member}\b[^`\n]*`", pages)
    ]
    assert missing == [], "in no page of docs/client"


def test_attributes_of_clients_are_private() -> None:
    settings: Any = {"bootstrap_servers": "127.0.0.1:1"}
    for kind in (braidlog.Producer, braidlog.Consumer, braidlog.Admin):
        with kind(**settings) as client:
            assert [name for name in vars(client) if not name.startswith("_")] == []


def test_help_has_the_parameters() -> None:
    assert "on_delivery" in str(inspect.signature(braidlog.Producer.send))
    assert "timeout" in str(inspect.signature(braidlog.Delivery.result))
