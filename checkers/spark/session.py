"""A quiet Spark session: in this process, on the user's standalone cluster, or through Spark Connect.

There is no UI, and what Java has to say goes to a file that is shown only when the session does not start. Code travels to the
workers as a zip of `checkers` and `results`, or as what the caller makes. Everything stays on loopback, unless the cluster's
master is elsewhere: then its workers have to reach this machine, by the address that the master is reached from.
"""

import contextlib
import logging
import os
import re
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tribunal import PACKAGE, ROOT
from tribunal.checkers.spark.java import java_home
from tribunal.checkers.spark.starting import end_java, hurry
from tribunal.results.plugins import own_files
from tribunal.results.scratch import Scratch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 3
ANSWER_SECONDS: Final = 5
LOOK_SECONDS: Final = 0.2
END_SECONDS: Final = 5
ASKING: Final = "Connecting to master"
ANSWERED: Final = "Connected to Spark cluster"
BACKGROUND: Final = 10  # niceness of what must not disturb a run
CONNECT: Final = "pip install 'pyspark[connect]==4.3.0' (the extra replog[connect])"
DEFAULT_MASTER: Final = "local[*]"
COMPLAINT: Final = re.compile(r"[\d:]{8} (ERROR|FATAL|WARN) ")  # a line of these settings
LOG_SETTINGS: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.asking.name = org.apache.spark.deploy.client
logger.asking.level = info
logger.answered.name = org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend
logger.answered.level = info
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


MakesCode = Callable[[Path], Path]


class NoSpark(Exception):
    """The Spark that was asked for cannot be had; one clear line."""


@contextlib.contextmanager
def session(master: str | None = None, code: MakesCode | None = None) -> "Iterator[SparkSession]":
    """Give a session and stop it; `master` is local[n], spark://host:port or sc://host:port (Spark Connect).

    code:  makes the archive of Python code that travels to the workers, in a folder; None: what judging needs.
    """
    with Prepared(master, code) as prepared:
        yield prepared.session()


class Prepared:
    """A session that may start in the background while a run still goes on; `session` waits for it.

    niceness:  of what is started so. Judging goes on with it: whoever may not raise a priority again cannot end it.
    """

    def __init__(self, master: str | None = None, code: MakesCode | None = None, *, niceness: int = BACKGROUND) -> None:
        self._niceness = niceness
        self._master = master or DEFAULT_MASTER
        self._code = code or _code
        self._thread: threading.Thread | None = None
        self._session: SparkSession | None = None
        self._problem: Exception | None = None
        self._has_begun = False

    def __enter__(self) -> "Prepared":
        self._scratch = Scratch("spark")
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_begun and self._session is None:
            self._end_start()
        if self._session is not None:
            self._session.stop()
        self._scratch.close()

    def start(self) -> None:
        """Begin to start the session and its Python workers; returns at once."""
        if self._thread is None:
            self._has_begun = True
            self._thread = threading.Thread(target=self._start_and_warm, name="spark", daemon=True)
            self._thread.start()

    def session(self) -> "SparkSession":
        """Return the session. Raises NoSpark or NoJava."""
        if self._thread is not None:
            if self._niceness:
                hurry(self._scratch.path)
            self._thread.join()
        elif self._session is None:
            self._has_begun = True
            self._session = _start(self._master, self._scratch.path, self._code)
        if self._problem is not None:
            raise self._problem
        assert self._session is not None
        return self._session

    def _end_start(self) -> None:
        """End a start that nobody waits for any more, or that was interrupted."""
        deadline = time.monotonic() + END_SECONDS
        # One that becomes another program has no command line for a moment, and one that was killed is there for a moment.
        none_seen = 0 if end_java(self._scratch.path) else 1
        while (none_seen < 2 or self.is_starting) and time.monotonic() < deadline:
            threading.Event().wait(LOOK_SECONDS)
            if self._session is not None:
                break  # it has come, and is stopped as any
            none_seen = 0 if end_java(self._scratch.path) else none_seen + 1

    @property
    def is_starting(self) -> bool:
        """Whether it was begun in the background, and is not there yet."""
        return self._thread is not None and self._thread.is_alive()

    def _start_and_warm(self) -> None:
        try:
            self._session = _start(self._master, self._scratch.path, self._code, niceness=self._niceness)
            _warm(self._session)
        except Exception as problem:  # noqa: BLE001 - a thread's top: it is raised where the session is asked for
            self._problem = problem


def compile_plans(spark: "SparkSession", *, wanted: bool) -> None:
    """Set whether plans are compiled before they run: it takes longer than a small plan needs when interpreted."""
    spark.conf.set("spark.sql.codegen.wholeStage", str(wanted).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if wanted else "NO_CODEGEN")


def _warm(spark: "SparkSession") -> None:
    """Fork the workers and load Java's classes by a job of the shape of judging."""
    spark.range(0, 2, 1, 2).mapInArrow(_same, "id long").collect()


def _same(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    yield from batches


def _start(master: str, folder: Path, make_code: MakesCode, niceness: int = 0) -> "SparkSession":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    _must_answer(master)
    code = make_code(folder)
    if master.startswith("sc://"):
        return _connected(master, code)
    log = folder / "spark.log"
    with _environment(master, folder, log, niceness):
        try:
            spark = _registered(master, folder, log)
        except NoSpark:
            raise
        except Exception as error:
            raise NoSpark(f"Spark does not start: {complaint(log, error)} (or judge with --engine inline)") from error
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.addPyFile(str(code))
    return spark


@contextlib.contextmanager
def _environment(master: str, folder: Path, log: Path, niceness: int) -> Iterator[None]:
    """Set what the script that launches Java reads."""
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", own_address(master))
    if master.startswith("local"):
        # The daemon that workers are forked from has to find its module before any code has travelled.
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    # Java inherits the screen: the script that launches it gives it a file instead.
    (folder / "spark-env.sh").write_text(f'exec 2>>"{log}"\nrenice -n {niceness} -p $$ >/dev/null 2>&1 || true\n')
    os.environ.setdefault("SPARK_CONF_DIR", str(folder))
    try:
        yield
    finally:
        if os.environ["SPARK_CONF_DIR"] == str(folder):
            del os.environ["SPARK_CONF_DIR"]


def _registered(master: str, folder: Path, log: Path) -> "SparkSession":
    """Start a session; Spark itself would ask a silent master for a minute.

    The time counts from where Java's log says that it asks: Java's own start may take long on a busy machine.
    """
    if "://" not in master:
        return _builder(master, folder)
    answers: list[SparkSession] = []
    problems: list[Exception] = []

    def wait() -> None:
        try:
            answers.append(_builder(master, folder))
        except Exception as error:  # noqa: BLE001 - a thread's top: it is raised below
            problems.append(error)

    thread = threading.Thread(target=wait, name="spark-session", daemon=True)
    thread.start()
    waited = 0.0
    while not answers and not problems and waited < ANSWER_SECONDS:
        thread.join(LOOK_SECONDS)
        said = log.read_text(errors="replace") if log.exists() else ""
        waited += LOOK_SECONDS if ASKING in said and ANSWERED not in said else 0
    if problems:
        raise problems[0]
    if not answers:
        raise NoSpark(f"{master} takes connections but does not answer as Spark within {ANSWER_SECONDS} s")
    return answers[0]


def no_interrupt(record: logging.LogRecord) -> bool:
    """Let everything be logged but Ctrl-C: py4j logs it with a traceback although it raises it again."""
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


def _builder(master: str, folder: Path) -> "SparkSession":
    from pyspark.sql import SparkSession

    logging.getLogger().addFilter(no_interrupt)
    settings = folder / "log4j2.properties"
    settings.write_text(LOG_SETTINGS)
    # Java only schedules here: the optimising compiler would cost more than it ever saves. Without it Java reserves 48 MB for
    # compiled code, which the queries of a few runs fill; from then on all of it is interpreted.
    java_options = f"-Dlog4j2.configurationFile={settings} -XX:+UseSerialGC -Xss4m -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    builder = (
        SparkSession.builder.master(master)
        .appName("tribunal")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", own_address(master))
        .config("spark.driver.bindAddress", own_address(master))
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.worker.reuse", "true")
    )
    if master.startswith("local"):
        builder = builder.config("spark.python.daemon.module", "tribunal.checkers.spark.daemon")
    return builder.getOrCreate()


def _connected(master: str, code: Path) -> "SparkSession":
    try:
        import grpc  # type: ignore[import-untyped]
    except ImportError:
        raise NoSpark(f"Spark Connect needs the package 'grpcio': {CONNECT}") from None
    from pyspark.sql import SparkSession

    with grpc.insecure_channel(urlsplit(master).netloc) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            problem = f"{master} takes connections but does not answer as Spark within {ANSWER_SECONDS} s"
            raise NoSpark(problem) from None
    try:
        spark = SparkSession.builder.remote(master).getOrCreate()
        spark.addArtifacts(str(code), pyfile=True)
    except Exception as error:
        raise NoSpark(f"Spark Connect at {master}: {_first_line(error)}") from error
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


def _code(folder: Path) -> Path:
    """Zip what judging needs on workers: `checkers` and `results`, as parts of `tribunal`, and a user's own plugins."""
    path = folder / "tribunal_code.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(PACKAGE / "__init__.py", "tribunal/__init__.py")
        for package in ("checkers", "results"):
            for source in sorted((PACKAGE / package).rglob("*.py")):
                archive.write(source, source.relative_to(ROOT))
        for source, name in own_files():
            archive.write(source, name)
    return path


def own_address(master: str) -> str:
    """Return the address of this machine that a master's workers can reach: the one that the master is reached from."""
    if not master.startswith("spark://"):
        return LOOPBACK
    host, _, port = urlsplit(master).netloc.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), CONNECT_SECONDS) as connection:
        return str(connection.getsockname()[0])


def complaint(log: Path, error: Exception) -> str:
    """Return what Java complained of last, else the last thing that it said: who shuts down behind an error says so, too."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines() if line.strip()]
    complaints = [line for line in lines if COMPLAINT.match(line)]
    return (complaints or lines)[-1][:200] if lines else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
