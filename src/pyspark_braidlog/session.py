"""A Spark session that is ready for braidlog: Java found, logs quiet, loopback in local mode, the right Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog.core.errors import UserError
from pyspark_braidlog.java import find_java, home_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS: Final = Path(__file__).parent / "templates" / "log4j2.properties"
SILENT: Final = Path(__file__).parent / "templates" / "silent.properties"
HOW_TO_GET_SPARK: Final = "Spark is not installed: pip install 'braidlog[spark]'"

_LOOPBACK: Final = "127.0.0.1"
_LOCAL: Final = re.compile(r"local(-cluster)?(\[.*\])?")
# Set for programs that spark-submit runs: Java was there first.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
# Printed by the Python of the workers, if it is not this one.
_PROBE: Final = """\
import sys
from importlib.util import find_spec
print(*sys.version_info[:2], find_spec("pyspark_braidlog") is not None)
"""
_PROBE_S: Final = 30.0
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")

# For every session that we start, under what the user says.
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's Python processes are on the machine of their executor: five to ten per cent less work than loopback TCP.
    **({} if os.name == "nt" else {"spark.python.unix.domain.socket.enabled": "true"}),
}
# In local mode: a table of hundreds of shuffle partitions on a laptop is only waiting.
_LOCAL_DEFAULTS: Final = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
}


def spark_session(
    app_name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    java: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session on `master` (default: Spark's own setting, or `local[*]`), or on a Spark Connect server at `remote`.

    `conf` has Spark's settings; they win over what is set here.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as problem:
        raise UserError(HOW_TO_GET_SPARK) from problem
    if master is not None and remote is not None:
        raise UserError("a session is either on a master or on a remote Spark Connect server: give one of the two")
    if remote is not None and not _LOCAL.fullmatch(remote):
        builder = SparkSession.builder.remote(remote).appName(app_name)
        for name, value in (conf or {}).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    check_workers_python()
    running = SparkSession.getActiveSession() if remote is None else None
    where = remote or master or (conf or {}).get("spark.master") or default_master()
    builder = SparkSession.builder.appName(app_name)
    if remote is not None:
        builder = builder.remote(remote)
    elif where is not None:
        builder = builder.master(where)
    for name, value in session_settings(where or "", conf or {}).items():
        builder = builder.config(name, value)
    if running is not None or _SUBMITTED in os.environ:
        # Java is running already: what is said about it would come too late.
        return builder.getOrCreate()
    with _environment(spark_environment(where or "", java=java)):
        return builder.getOrCreate()


def workers_python(environment: Mapping[str, str] = os.environ) -> str | None:
    """The Python that Spark starts its workers with, where that is on this machine and not the one that runs here."""
    found = shutil.which(environment.get("PYSPARK_PYTHON") or "python3")
    # Not where links lead: environments are distinguished by the name under which a Python is called.
    return None if found is None or os.path.abspath(found) == os.path.abspath(sys.executable) else found


def check_workers_python(environment: Mapping[str, str] = os.environ) -> None:
    """UserError where the Python chosen for the workers cannot run the data source."""
    other = workers_python(environment) if "PYSPARK_PYTHON" in environment else None
    if other is None:
        return
    try:
        asked = subprocess.run([other, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_S, check=True)
        major, minor, has_braidlog = asked.stdout.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        # No Python, or one that is not in order: Spark will say more.
        return
    here = f"this program runs {sys.executable}, Python {sys.version_info.major}.{sys.version_info.minor}"
    there = f"PYSPARK_PYTHON has Spark's workers run {other}, Python {major}.{minor}"
    if has_braidlog != "True":
        raise UserError(
            f"{there}, in which braidlog is not installed ({here}): unset PYSPARK_PYTHON, or run "
            f"`{other} -m pip install 'braidlog[spark]'`"
        )
    if (int(major), int(minor)) != sys.version_info[:2]:
        raise UserError(f"{there}, but {here}: Spark needs the same minor version for both; unset PYSPARK_PYTHON")


def default_master(environment: Mapping[str, str] = os.environ) -> str | None:
    """`local[*]`, or None where Spark is configured by other means, such as `spark-submit`."""
    if _SUBMITTED in environment or "--master" in environment.get("PYSPARK_SUBMIT_ARGS", ""):
        return None
    folder = environment.get("SPARK_CONF_DIR") or os.path.join(environment.get("SPARK_HOME", ""), "conf")
    try:
        settings = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        settings = ""
    if re.search(r"^\s*spark\.master[\s=:]", settings, re.MULTILINE):
        return None
    return environment.get("MASTER") or "local[*]"


def session_settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a session on `master`."""
    settings = dict(_DEFAULTS)
    if is_local(master):
        settings |= _LOCAL_DEFAULTS
    settings |= conf
    options = settings.get("spark.driver.extraJavaOptions", "")
    ours = [] if "log4j" in options or "spark.log.level" in conf else [log_option()]
    if is_local(master) and not _COLLECTOR.search(options):
        # Less work than the default on few cores; pauses do not matter to batches.
        ours.append("-XX:+UseParallelGC")
    if ours:
        settings["spark.driver.extraJavaOptions"] = " ".join([*ours, options]).strip()
    return settings


def log_option(settings: Path = LOG_SETTINGS) -> str:
    """The word on Java's command line that keeps Spark quiet."""
    return f"-Dlog4j2.configurationFile={settings.as_uri()}"


def is_local(master: str) -> bool:
    return _LOCAL.fullmatch(master) is not None


def spark_environment(
    master: str = "local[*]",
    *,
    java: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The variables that Spark's programs need; those that the user set are left as they are, but for JAVA_HOME."""
    wanted = {"JAVA_HOME": str(home_for_spark(find_java(java, environment)))}
    if "PYSPARK_PYTHON" not in environment:
        wanted["PYSPARK_PYTHON"] = sys.executable
    if is_local(master) and "SPARK_LOCAL_IP" not in environment:
        wanted["SPARK_LOCAL_IP"] = _LOOPBACK
    return wanted


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Java and its workers inherit these; what this program starts otherwise does not."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
