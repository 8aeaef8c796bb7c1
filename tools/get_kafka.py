"""Fetch Apache Kafka as plain jars by the machine's Maven: a reference to compare with, and its command line tools.

    python tools/get_kafka.py             # prints the folder that holds the jars, fetching them the first time

The jars go to `~/.cache/tribunal/kafka/<version>` (or `TRIBUNAL_KAFKA`), outside the repository, and are shared by tests and
benchmarks. A folder is complete when it has a `VERSION` file: it is written last, into a folder renamed last, so that an interrupted
or a concurrent fetch leaves nothing half done behind. What is asked of Maven is the released `kafka_2.13` (broker and controller),
`kafka-tools` (command line) and the bridge from slf4j to the log4j that Kafka brings; Kafka Connect and its web server are left out.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "4.3.1"
LOG4J: Final = "2.25.4"  # what Kafka 4.3.1 itself brings
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_TIMEOUT_S: Final = 600
WITHOUT: Final = {
    "kafka_2.13": [],
    "kafka-tools": [("org.apache.kafka", "connect-runtime"), ("com.fasterxml.jackson.jakarta.rs", "*")],
}
LOGGING: Final = """\
rootLogger.level = ${sys:kafka.log.level:-WARN}
rootLogger.appenderRef.e.ref = E
appender.e.type = Console
appender.e.name = E
appender.e.target = SYSTEM_ERR
appender.e.layout.type = PatternLayout
appender.e.layout.pattern = [%d] %p %m (%c)%n
"""


class NoKafka(Exception):
    """Kafka cannot be had here; the message says why in one line."""


def kafka_jars(version: str = VERSION) -> Path:
    """Return the folder with the jars, fetching them when they are not there yet; `NoKafka` when that is impossible."""
    folder = cache() / version
    if not (folder / "VERSION").exists():
        _fetch(folder, version)
    if shutil.which("java") is None:
        raise NoKafka("no `java` on the path (17 or newer is needed)")
    return folder


def cache() -> Path:
    """Return where jars are kept, one folder a version."""
    return Path(os.environ.get("TRIBUNAL_KAFKA", "~/.cache/tribunal/kafka")).expanduser()


def _fetch(folder: Path, version: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoKafka("no `mvn` on the path to fetch Apache Kafka with")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
        project, jars = Path(scratch, "pom.xml"), Path(scratch, "jars")
        project.write_text(_project(version))
        _run_maven([maven, "-q", "-B", "-f", str(project), COPY, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"])
        (jars / "log4j2.properties").write_text(LOGGING)
        (jars / "VERSION").write_text(version + "\n")
        if not (folder / "VERSION").exists():  # somebody may have been quicker
            jars.rename(folder)


def _run_maven(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NoKafka(f"Maven did not fetch Apache Kafka within {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NoKafka(f"Maven cannot fetch Apache Kafka: {said[0] if said else f'exit code {done.returncode}'}")


def _project(version: str) -> str:
    kafka = [_dependency("org.apache.kafka", name, version, without) for name, without in WITHOUT.items()]
    dependencies = [*kafka, _dependency("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J, [])]
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tribunal</groupId><artifactId>kafka-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>"
    )


def _dependency(group: str, name: str, version: str, without: list[tuple[str, str]]) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>{other_group}</groupId><artifactId>{other}</artifactId></exclusion>"
        for other_group, other in without
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>"
    )


def main() -> int:
    """Fetch, and print the folder."""
    arguments = argparse.ArgumentParser(description="Fetch Apache Kafka as plain jars by Maven.")
    arguments.add_argument("--version", default=VERSION, help="a released version (default: %(default)s)")
    try:
        print(kafka_jars(arguments.parse_args().version))
    except NoKafka as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
