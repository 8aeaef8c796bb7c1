"""Apache Kafka as plain jars, fetched by the machine's Maven: a system under test, a reference, and its command line tools.

The jars (`python tools/get_kafka.py` fetches them beforehand) go to `~/.cache/tribunal/kafka/<version>` (or `TRIBUNAL_KAFKA`), outside the repository, and are shared by tests and
benchmarks. A folder is complete when it has a `VERSION` file: it is written last, into a folder renamed last, so that an interrupted
or a concurrent fetch leaves nothing half done behind. What is asked of Maven is the released `kafka_2.13` (broker and controller),
`kafka-tools` (command line) and the bridge from slf4j to the log4j that Kafka brings; Kafka Connect and its web server are left out.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from clusters.obstacles import Obstacle

VERSION: Final = "4.3.1"
LOG4J: Final = "2.25.4"  # what Kafka 4.3.1 itself brings
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_TIMEOUT_S: Final = 600
JAVA_LEAST: Final = 17
RELEASE: Final = re.compile(r'version "(\d+)')
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


def obstacles(version: str = VERSION) -> list[Obstacle]:
    """Say why Apache Kafka cannot be run here; nothing is fetched to find out."""
    found = []
    release = java_release()
    if release is None or release < JAVA_LEAST:
        said = "no `java` on the path" if release is None else f"`java` is version {release}"
        remedy = f"apt-get install openjdk-{JAVA_LEAST}-jre-headless"
        found.append(Obstacle(reason=f"{said} (Kafka needs {JAVA_LEAST} or newer)", remedy=remedy))
    if not (cache() / version / "VERSION").exists():
        maven = shutil.which("mvn") is not None
        reason = f"the jars of Apache Kafka {version} are not in {cache()}" + (
            "" if maven else ", and no `mvn` to fetch them"
        )
        remedy = "python tools/get_kafka.py (Maven and a network; the first run does it too), or TRIBUNAL_KAFKA=FOLDER"
        found.append(Obstacle(reason=reason, remedy=remedy, blocks=not maven))
    return found


def java_release() -> int | None:
    """Return the feature release of the `java` on the path, None when there is none that starts."""
    java = shutil.which("java")
    if java is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603 - the machine's own java
            [java, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = RELEASE.search(said)
    return int(found.group(1)) if found else None


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
        done = subprocess.run(  # noqa: S603 - our own command, no shell
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
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
