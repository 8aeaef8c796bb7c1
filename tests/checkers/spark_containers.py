"""A standalone Spark cluster in containers: master and workers have addresses, processes and files of their own.

The image is empty. Java, Spark and Python are this machine's, bound in read-only where they are; this repository is not among them, so that what
workers run of it has travelled.
"""

import io
import os
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.checkers.spark_clusters import HOME, JAVA, MASTER, WORKER
from tribunal.checkers.spark.java import java_home
from tribunal.clusters.images.build import engine

if TYPE_CHECKING:
    from docker.models.containers import Container

ROOT = Path(__file__).parents[2]
PORT = 7077
LINKS = ("bin", "lib", "lib64", "sbin")
WITHIN_S = 60
SCALA = (
    next((HOME / "jars").glob("spark-core_*")).name.split("_")[1].split("-")[0]
)  # Spark's script would say it to executors


def java() -> Path:
    """Return the program `java`, where it really is."""
    home = java_home()
    found = home / "bin" / "java" if home else shutil.which("java")
    assert found is not None
    return Path(found).resolve()


def root_files() -> bytes:
    """Return the image's files as a tar archive: places to bind to, and the links to them that this machine has."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("usr", "etc", "tmp", "work"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        for name in LINKS:
            link = Path("/", name)
            if link.is_symlink():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, str(link.readlink())
                archive.addfile(entry)
        passwd = b"root:x:0:0:root:/work:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size = len(passwd)
        archive.addfile(entry, io.BytesIO(passwd))
    return buffer.getvalue()


def bound(seen: Sequence[Path]) -> list[str]:
    """Return what containers see of this machine, each once and none within another; `seen`: besides Java, Spark and Python."""
    folders = [Path("/usr"), *(Path("/", name) for name in LINKS if not Path("/", name).is_symlink())]
    folders += [Path(f"/etc/{one.name}") for one in Path("/etc").glob("java*")]  # Debian keeps parts of a JDK there
    folders += [java().parents[1], Path(sys.base_prefix), Path(sys.prefix), *seen]
    outer = [
        one
        for one in folders
        if one.exists() and not any(one != other and one.is_relative_to(other) for other in folders)
    ]
    return [f"{one}:{one}:ro" for one in dict.fromkeys(outer)]


class Containers:
    """A master and its workers."""

    def __init__(self, workers: int, seen: Sequence[Path]) -> None:
        self._bound = bound(seen)
        self._client = engine()
        self._name = f"tribunal-spark-{os.getpid()}-{time.monotonic_ns()}"
        self._all: list[Container] = []
        self.workers: list[Container] = []
        self._image = self._client.api.import_image_from_data(root_files(), repository=self._name, tag="test")
        self._network = self._client.networks.create(self._name, driver="bridge")
        try:
            self.master = self._run(MASTER, "--port", str(PORT))
            self.url = f"spark://{self._address(self.master)}:{PORT}"
            self._said(self.master, "I have been elected leader")
            for _ in range(workers):
                self.add()
        except BaseException:
            self.stop()
            raise

    def _run(self, program: str, *words: str) -> "Container":
        host = '"$(hostname -i)"'
        command = f'exec "$0" {JAVA} -cp "$1/jars/*" {program} --host {host} --webui-port 0 {" ".join(words)}'
        started = self._client.containers.run(
            f"{self._name}:test", ["/bin/sh", "-c", command, str(java()), str(HOME)],
            detach=True, network=self._name, volumes=self._bound, working_dir="/work",
            environment={"SPARK_HOME": str(HOME), "SPARK_WORKER_DIR": "/work", "SPARK_SCALA_VERSION": SCALA, "PATH": "/usr/bin:/bin", "JAVA_HOME": str(java().parents[1])},
        )  # fmt: skip
        self._all.append(started)
        return started

    def _address(self, container: "Container") -> str:
        container.reload()
        return str(container.attrs["NetworkSettings"]["Networks"][self._name]["IPAddress"])

    @staticmethod
    def _said(container: "Container", words: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while words not in (said := container.logs().decode(errors="replace")):
            container.reload()
            assert container.status == "running", said
            assert time.monotonic() < deadline, said
            threading.Event().wait(0.1)

    def add(self) -> None:
        """Add a worker; return when its master knows it."""
        worker = self._run(WORKER, "--cores", "1", "--memory", "1g", self.url)
        self._said(worker, "Successfully registered with master")
        self.workers.append(worker)

    def kill(self, number: int) -> None:
        """Kill a worker with all that runs in its container."""
        self.workers[number].kill()

    def sees(self, path: Path) -> bool:
        """Return whether a worker has a file."""
        return bool(self.workers[-1].exec_run(["test", "-e", str(path)]).exit_code == 0)

    def stop(self) -> None:
        """End and remove all of it."""
        for container in self._all:
            container.remove(force=True)
        self._network.remove()
        self._client.images.remove(f"{self._name}:test", force=True)
        self._client.close()


@contextmanager
def in_containers(workers: int, *seen: Path) -> Iterator[Containers]:
    cluster = Containers(workers, seen)
    try:
        yield cluster
    finally:
        cluster.stop()
