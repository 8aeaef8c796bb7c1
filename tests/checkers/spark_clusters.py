"""Spark clusters on loopback for tests: a standalone one, master and two workers from the wheel, and a Connect server."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tribunal.checkers.spark.java import java_home

HOME = Path(pyspark.__file__).parent
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
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
    env |= {"JAVA_HOME": str(home)} if home else {}
    env.pop("SPARK_CONF_DIR", None)
    log = (folder / f"{len(list(folder.glob('*.log')))}.log").open("wb")
    with log:
        return subprocess.Popen(
            [str(HOME / "bin" / command[0]), *command[1:]], env=env, stdout=log, stderr=log, cwd=folder
        )


class Standalone:
    """A master and its workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        place = ["--host", "127.0.0.1", "--webui-port", "0"]
        self.master = launch(folder, "spark-class", MASTER, *place, "--port", str(port))
        answers(port, self.master)
        size = ["--cores", "1", "--memory", "1g"]
        self.workers = [launch(folder, "spark-class", WORKER, *place, *size, self.url) for _ in range(2)]

    def kill(self, number: int) -> None:
        """Kill a worker; the executor that it started ends with it."""
        self.workers[number].kill()
        self.workers[number].wait()

    def stop(self) -> None:
        for process in (*self.workers, self.master):
            process.kill()
            process.wait()


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    cluster = Standalone(folder)
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
