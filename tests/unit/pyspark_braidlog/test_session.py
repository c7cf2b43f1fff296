"""What a session is started with; the user's word wins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.session import (
    LOG_SETTINGS,
    check_workers_python,
    default_master,
    is_local,
    session_settings,
    spark_environment,
    spark_session,
    workers_python,
)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,4]", "local-cluster[2,1,1024]"])
def test_local_masters(master: str) -> None:
    assert is_local(master)
    settings = session_settings(master, {})
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "localhost"])
def test_a_cluster_has_its_own_addresses(master: str) -> None:
    assert not is_local(master)
    assert "spark.driver.host" not in session_settings(master, {})


def test_a_master_that_spark_knows_of_by_other_means_is_left_alone(tmp_path: Path) -> None:
    assert default_master({}) == "local[*]"
    assert default_master({"MASTER": "spark://host:7077"}) == "spark://host:7077"
    assert default_master({"PYSPARK_GATEWAY_PORT": "4711"}) is None
    assert default_master({"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}) is None
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("# spark.master yarn\nspark.ui.enabled false\n")
    assert default_master({"SPARK_CONF_DIR": str(tmp_path)}) == "local[*]"
    defaults.write_text("spark.ui.enabled false\nspark.master   spark://host:7077\n")
    assert default_master({"SPARK_CONF_DIR": str(tmp_path)}) is None


def test_the_users_settings_win() -> None:
    settings = session_settings("local[2]", {"spark.ui.enabled": "true", "spark.driver.host": "10.0.0.1"})
    assert (settings["spark.ui.enabled"], settings["spark.driver.host"]) == ("true", "10.0.0.1")


def test_logs_are_quiet_unless_the_user_says_how_they_are() -> None:
    quiet = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    assert LOG_SETTINGS.is_file()
    name = "spark.driver.extraJavaOptions"
    assert session_settings("yarn", {})[name] == quiet
    assert session_settings("yarn", {name: "-Xss4m"})[name] == f"{quiet} -Xss4m"
    own = "-Dlog4j2.configurationFile=mine.properties"
    assert session_settings("yarn", {name: own})[name] == own
    assert name not in session_settings("yarn", {"spark.log.level": "INFO"})


def test_in_local_mode_garbage_is_collected_in_parallel_unless_the_user_chose() -> None:
    name = "spark.driver.extraJavaOptions"
    assert "-XX:+UseParallelGC" in session_settings("local[2]", {})[name].split()
    assert "UseParallelGC" not in session_settings("local[2]", {name: "-XX:+UseZGC"})[name]
    assert "UseParallelGC" not in session_settings("spark://h:7077", {}).get(name, "")


def test_the_environment_is_only_filled_up(tmp_path: Path) -> None:
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "lib").mkdir()
    (java / "bin" / "java").write_text("#!/bin/sh\n")
    (java / "bin" / "java").chmod(0o755)
    (java / "release").write_text('JAVA_VERSION="17.0.1"\n')
    base = {"JAVA_HOME": str(java), "PATH": ""}
    ours = spark_environment("local[2]", environment=base)
    assert ours["PYSPARK_PYTHON"] == sys.executable
    assert ours["SPARK_LOCAL_IP"] == "127.0.0.1"
    theirs = {**base, "PYSPARK_PYTHON": "/opt/python", "SPARK_LOCAL_IP": "10.0.0.1"}
    assert set(spark_environment("local[2]", environment=theirs)) == {"JAVA_HOME"}
    assert "SPARK_LOCAL_IP" not in spark_environment("spark://host:7077", environment=base)


def test_master_or_remote_but_not_both() -> None:
    with pytest.raises(UserError, match="either on a master or on a remote"):
        spark_session("test", master="local", remote="sc://host")


def test_without_spark_it_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from pyspark_braidlog.session import spark_session\n"
        "try: spark_session('x')\n"
        "except Exception as problem: print(type(problem).__name__, problem)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "UserError Spark is not installed: pip install 'braidlog[spark]'"


def test_the_package_is_light_but_has_what_spark_looks_for() -> None:
    program = (
        "import sys, pyspark_braidlog\n"
        "print('pyspark' in sys.modules, 'pyarrow' in sys.modules, pyspark_braidlog.DefaultSource.name())"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "False", "braidlog"]


def fake_python(place: Path, answer: str) -> str:
    path = place / "python-elsewhere"
    path.write_text(f"#!/bin/sh\necho {answer}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("3 11 False", "in which braidlog is not installed"),
        ("2 7 True", "Python 2.7, but this program runs"),
        (f"{sys.version_info.major} {sys.version_info.minor} True", None),
        ("nonsense", None),
    ],
)
def test_workers_of_another_python(tmp_path: Path, answer: str, said: str | None) -> None:
    chosen = {"PYSPARK_PYTHON": fake_python(tmp_path, answer)}
    if said is None:
        check_workers_python(chosen)
    else:
        with pytest.raises(UserError, match=said):
            check_workers_python(chosen)


def test_workers_of_this_python_are_not_asked() -> None:
    assert workers_python({"PYSPARK_PYTHON": sys.executable}) is None
    assert workers_python({"PYSPARK_PYTHON": "./only/on/the/workers"}) is None
    check_workers_python({})
