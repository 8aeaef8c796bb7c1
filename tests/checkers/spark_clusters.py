"""Spark clusters on loopback for tests: a standalone one, master and workers from the wheel, and a Connect server."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from tribunal.checkers.spark.java import java_home

HOME = Path(pyspark.__file__).parent
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
PLACE = ["--host", "127.0.0.1", "--webui-port", "0"]
LISTENS = "0A"  # the state in /proc/net/tcp
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, "the Spark process ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            threading.Event().wait(0.1)
    raise AssertionError(f"nothing answers at port {port}")


def launch(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    home = java_home()
    env = os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    env |= {"SPARK_DAEMON_JAVA_OPTS": JAVA, "SPARK_WORKER_DIR": str(folder), "SPARK_SUBMIT_OPTS": JAVA}
    # These are killed, and remove nothing then: what they and their executors make for a while belongs to the test's folder.
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    env |= {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
    env |= {"JAVA_HOME": str(home)} if home else {}
    env.pop("SPARK_CONF_DIR", None)
    log = (folder / f"{len(list(folder.glob('*.log')))}.log").open("wb")
    with log:
        return subprocess.Popen(
            [str(HOME / "bin" / command[0]), *command[1:]], env=env, stdout=log, stderr=log, cwd=folder
        )


class Standalone:
    """A master and its workers."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.master = launch(folder, "spark-class", MASTER, *PLACE, "--port", str(port))
        self.workers: list[subprocess.Popen[bytes]] = []
        try:
            answers(port, self.master)
            for _ in range(workers):
                self.add()
        except BaseException:
            self.stop()
            raise

    def add(self) -> None:
        """Add a worker."""
        size = ["--cores", "1", "--memory", "1g"]
        self.workers.append(launch(self.folder, "spark-class", WORKER, *PLACE, *size, self.url))

    def kill(self, number: int) -> None:
        """Kill a worker; the executor that it started ends with it."""
        self.workers[number].kill()
        self.workers[number].wait()

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            process.kill()
            process.wait()


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    cluster = Standalone(folder, workers)
    try:
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    port = free_port()
    settings = [f"spark.connect.grpc.binding.port={port}", "spark.connect.grpc.binding.address=127.0.0.1"]
    settings += ["spark.ui.enabled=false", "spark.driver.host=127.0.0.1", f"spark.local.dir={folder}"]
    options = [word for setting in settings for word in ("--conf", setting)]
    process = launch(folder, "spark-submit", "--master", "local[2]", "--class", CONNECT, *options, "spark-internal")
    try:
        answers(port, process)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def open_ports() -> set[str]:
    """Return the addresses other than loopback, as the kernel writes them, at which descendants of this process listen."""
    inodes = {inode for process in _descendants() for inode in _sockets(process)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and fields[9] in inodes and not fields[1].startswith(LOOPBACK):
                found.add(fields[1])
    return found


def _descendants() -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    waiting = list(children.get(os.getpid(), []))
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process, [])


def _sockets(process: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in Path("/proc", str(process), "fd").iterdir():
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]
