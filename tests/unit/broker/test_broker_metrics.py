from __future__ import annotations

import re
from pathlib import Path

from braidlog.broker.broker_metrics import LoopLag, broker_metrics, http_pages
from braidlog.broker.server import Server
from braidlog.core.errors import StorageFault
from braidlog.metric_names import CATALOGUE
from braidlog.wire.generated.create_acls import AclCreation, CreateAclsRequest
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from support.in_process_server import answer, on_server


def numbers(page: str) -> dict[str, float]:
    """By name with labels."""
    return {name: float(value) for name, value in re.findall(r"(?m)^([a-z]\S*(?:\{.*\})?) (\S+)$", page)}


def test_the_page_has_what_the_broker_knows(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        await answer(server, "CreateTopics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        found = numbers(broker_metrics(server).text())
        assert found["kafka_controller_kafkacontroller_globalpartitioncount"] == 3
        assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
        for name in (
            "controllerstate", "topicstodeletecount", "topicsineligibletodeletecount", "replicastodeletecount",
            "replicasineligibletodeletecount",
        ):  # fmt: skip
            assert found[f"kafka_controller_kafkacontroller_{name}"] == 0
        assert found["kafka_server_kafkaserver_brokerstate"] == 3
        assert found['kafka_log_log_logendoffset{topic="t",partition="2"}'] == 0
        assert found["process_resident_memory_bytes"] > 1 << 20
        shown = {re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0]) for name in found}
        assert shown <= {re.sub(r"_count$", "", name) for name in CATALOGUE}

    on_server(tmp_path, check)


def test_what_the_authorizer_counts(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        rule = AclCreation(
            resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
        )
        await answer(server, "CreateAcls", 3, CreateAclsRequest(creations=[rule]))
        found = numbers(broker_metrics(server).text())
        assert found["kafka_server_authorizer_metrics_authorization_allowed_total"] == 1
        assert found["kafka_server_authorizer_metrics_authorization_denied_total"] == 0
        assert found["kafka_server_authorizer_metrics_acls_total_count"] == 1

    on_server(
        tmp_path,
        check,
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:ANONYMOUS",
    )


def test_health_and_readiness(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        pages = http_pages(server)
        assert ((await pages["/healthz"]()).status, (await pages["/readyz"]()).status) == (200, 200)
        server.broker.logs.directories[0].fail(StorageFault("/d", "on fire"))
        assert "offline: on fire" in (await pages["/healthz"]()).body
        server.broker.ready = False
        assert (await pages["/readyz"]()).status == 503
        server.broker.ready = True
        server.broker.logs.directories[0].failure = None

    on_server(tmp_path, check)


def test_the_longest_stall_is_kept_for_a_minute_and_not_for_ever() -> None:
    lag = LoopLag()
    lag.note(100.0, 0.2)
    lag.note(100.1, -0.001)
    assert (lag.last, lag.longest) == (0.0, 0.2)
    lag.note(161.0, 0.05)
    assert lag.longest == 0.2
    lag.note(222.0, 0.01)
    assert lag.longest == 0.05


def test_a_stall_of_long_ago_is_forgotten_though_nothing_was_noted_meanwhile() -> None:
    lag = LoopLag()
    lag.note(100.0, 0.2)
    lag.note(1_000.0, 0.01)
    assert lag.longest == 0.01
