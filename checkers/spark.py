"""A quiet Spark session: in this process, on the user's standalone cluster, or through Spark Connect.

Everything stays on loopback, there is no UI, and what Java has to say goes to a file that is shown only when
the session does not start. Code travels to the workers as a zip of `checkers` and `results`.
"""

import contextlib
import os
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from checkers.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).resolve().parent.parent
CONNECT_SECONDS: Final = 3
DEFAULT_MASTER: Final = "local[*]"
LOG_SETTINGS: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


class NoSpark(Exception):
    """The Spark that was asked for cannot be had; one clear line."""


@contextlib.contextmanager
def session(master: str | None = None) -> "Iterator[SparkSession]":
    """Give a session and stop it; `master` is local[n], spark://host:port or sc://host:port (Spark Connect)."""
    with tempfile.TemporaryDirectory(prefix="tribunal-spark-") as folder:
        spark = _start(master or DEFAULT_MASTER, Path(folder))
        try:
            yield spark
        finally:
            spark.stop()


def _start(master: str, folder: Path) -> "SparkSession":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _must_answer(master)
    code = _code(folder / "tribunal_code.zip")
    if master.startswith("sc://"):
        return _connected(master, code)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local"):
        # The daemon that workers are forked from has to find its module before any code has travelled.
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    log = folder / "spark.log"
    with _stderr_to(log):
        try:
            spark = _builder(master, folder)
        except Exception as error:
            raise NoSpark(f"Spark does not start: {_last_line(log, error)} (or judge with --engine inline)") from error
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.addPyFile(str(code))
    return spark


def _builder(master: str, folder: Path) -> "SparkSession":
    from pyspark.sql import SparkSession

    settings = folder / "log4j2.properties"
    settings.write_text(LOG_SETTINGS)
    # Java only schedules here: the optimising compiler would cost more than it ever saves.
    java_options = f"-Dlog4j2.configurationFile={settings} -XX:+UseSerialGC -Xss4m -XX:TieredStopAtLevel=1"
    builder = (
        SparkSession.builder.master(master)
        .appName("tribunal")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.worker.reuse", "true")
    )
    if master.startswith("local"):
        builder = builder.config("spark.python.daemon.module", "checkers.spark_daemon")
    return builder.getOrCreate()


def _connected(master: str, code: Path) -> "SparkSession":
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.remote(master).getOrCreate()
    except Exception as error:
        raise NoSpark(f"Spark Connect at {master}: {_first_line(error)}") from error
    spark.addArtifacts(str(code), pyfile=True)
    return spark


def _must_answer(master: str) -> None:
    """Spark itself waits for minutes for a master that is not there."""
    if "://" not in master:
        return
    for address in urlsplit(master).netloc.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            raise NoSpark(f"no Spark answers at {master}: {error}") from error


def _code(path: Path) -> Path:
    """Zip what workers need: the packages `checkers` and `results`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("checkers", "results"):
            for source in sorted((ROOT / package).rglob("*.py")):
                archive.write(source, source.relative_to(ROOT))
    return path


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """The JVM inherits this process's stderr when it is launched: give it a file instead of the user's screen."""
    sys.stderr.flush()
    saved = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(target)
        os.close(saved)


def _last_line(log: Path, error: Exception) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
