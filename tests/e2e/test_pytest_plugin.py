"""The pytest plugin as another project uses it: pytest in a process of its own, warnings as errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import pytest

RunPytest = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_pytest(tmp_path: Path) -> RunPytest:
    """Runs the test file (and ini) of a little project; the source is dedented."""

    def run(source: str, *arguments: str, ini: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(dedent(source))
        (tmp_path / "pytest.ini").write_text("[pytest]\n" + dedent(ini))
        command = [sys.executable, "-W", "error", "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers"]
        if not entry_points(group="pytest11", name="braidlog"):
            command += ["-p", "braidlog.testing.plugin"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )

    return run


def test_the_session_broker_is_shared_and_a_fresh_one_is_not(run_pytest: RunPytest) -> None:
    source = """
        import pytest
        from braidlog.client.admin.cluster_connection import ClusterConnection

        def topics(broker):
            with ClusterConnection(broker.bootstrap_servers) as cluster:
                return {topic.name for topic in cluster.metadata(None)}

        def test_makes_a_topic(braidlog_broker):
            braidlog_broker.create_topic("shared")

        def test_sees_it(braidlog_broker, braidlog_fresh_broker):
            assert "shared" in topics(braidlog_broker)
            assert topics(braidlog_fresh_broker) == set()

        def test_a_topic_of_its_own(braidlog_broker, braidlog_topic):
            assert braidlog_topic.startswith("test_a_topic_of_its_own-")
            assert braidlog_topic in topics(braidlog_broker)

        def test_it_is_gone(braidlog_broker):
            assert topics(braidlog_broker) == {"shared"}
    """
    for kind in ("thread", "process"):
        outcome = run_pytest(source, f"--braidlog-kind={kind}")
        assert "4 passed" in outcome.stdout, outcome.stdout


def test_settings_come_from_ini_option_and_marker(run_pytest: RunPytest) -> None:
    outcome = run_pytest(
        """
        import pytest
        from braidlog.client.admin.cluster_connection import ClusterConnection

        def partitions(broker):
            with ClusterConnection(broker.bootstrap_servers) as cluster:
                return len(cluster.topic("new", create=True).partitions)

        def test_ini_and_option(braidlog_broker):
            assert braidlog_broker.kind == "process"
            assert braidlog_broker.settings["log.retention.hours"] == "7"
            assert partitions(braidlog_broker) == 5

        @pytest.mark.braidlog(kind="thread", settings={"num.partitions": 2})
        def test_marker(braidlog_fresh_broker):
            assert braidlog_fresh_broker.kind == "thread"
            assert partitions(braidlog_fresh_broker) == 2
        """,
        "--braidlog-set=log.retention.hours=7",
        ini="braidlog_kind = process\nbraidlog_settings =\n    num.partitions=5\n",
    )
    assert "2 passed" in outcome.stdout, outcome.stdout


def test_a_project_overrides_the_settings_fixture(run_pytest: RunPytest) -> None:
    outcome = run_pytest("""
        import pytest

        @pytest.fixture(scope="session")
        def braidlog_settings():
            return {"broker.id": 42}

        def test_it(braidlog_broker):
            assert braidlog_broker.settings["broker.id"] == "42"
    """)
    assert "1 passed" in outcome.stdout, outcome.stdout


def test_a_failed_test_shows_the_brokers_log(run_pytest: RunPytest) -> None:
    outcome = run_pytest(
        """
        def test_fails(braidlog_fresh_broker):
            braidlog_fresh_broker.restart()
            assert False
        """,
        "--braidlog-kind=process",
    )
    assert "1 failed" in outcome.stdout
    assert "log of braidlog_fresh_broker" in outcome.stdout
    assert "braidlog.server: stopped cleanly" in outcome.stdout


def test_a_mistake_is_told(run_pytest: RunPytest) -> None:
    outcome = run_pytest(
        """
        import pytest

        @pytest.mark.braidlog(retention=3)
        def test_it(braidlog_fresh_broker):
            pass
        """
    )
    assert "takes kind=... and settings={...}" in outcome.stdout
    outcome = run_pytest("def test_it(braidlog_broker): pass", ini="braidlog_kind = container\n")
    assert "braidlog_kind is 'container'; there are thread and process" in outcome.stdout


def test_a_run_that_uses_no_broker_imports_next_to_nothing(run_pytest: RunPytest) -> None:
    outcome = run_pytest("""
        import sys

        def test_it():
            ours = {name for name in sys.modules if name.split(".")[0] == "braidlog"}
            assert ours <= {"braidlog", "braidlog._pure", "braidlog.testing", "braidlog.testing.plugin"}, ours
            assert "uvloop" not in sys.modules
    """)
    assert "1 passed" in outcome.stdout, outcome.stdout


def test_the_example_of_the_documentation(run_pytest: RunPytest) -> None:
    page = (Path(__file__).parents[2] / "docs" / "client" / "testing.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert example is not None
    outcome = run_pytest(example[1])
    assert "1 passed" in outcome.stdout, outcome.stdout
