"""Apache Kafka as plain jars, fetched by the machine's Maven: a system under test, a reference, and its command line tools.

The jars (in a checkout `python tools/get_kafka.py` fetches them beforehand) go to `~/.cache/tribunal/kafka/<version>` (or `TRIBUNAL_KAFKA`), outside the repository, and are shared by tests and
benchmarks. What is asked of Maven is the released `kafka_2.13` (broker and controller),
`kafka-tools` (command line) and the bridge from slf4j to the log4j that Kafka brings; Kafka Connect and its web server are left out.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tribunal.clusters.maven_jars import Artifact, NoJars, Program, fetch, is_complete
from tribunal.clusters.obstacles import Obstacle, with_tool

VERSION: Final = "4.3.1"
LOG4J: Final = "2.25.4"  # what Kafka 4.3.1 itself brings
JAVA_LEAST: Final = 17
RELEASE: Final = re.compile(r'version "(\d+)')
NEEDLESS: Final = (("org.apache.kafka", "connect-runtime"), ("com.fasterxml.jackson.jakarta.rs", "*"))
LOGGING: Final = """\
rootLogger.level = ${sys:kafka.log.level:-WARN}
rootLogger.appenderRef.e.ref = E
appender.e.type = Console
appender.e.name = E
appender.e.target = SYSTEM_ERR
appender.e.layout.type = PatternLayout
appender.e.layout.pattern = [%d] %p %m (%c)%n
"""


def kafka_jars(version: str = VERSION) -> Path:
    """Return the folder with the jars, fetching them when they are not there yet; `NoJars` when that is impossible."""
    folder = cache() / version
    if not is_complete(folder):
        fetch(folder, _program(version))
    if shutil.which("java") is None:
        raise NoJars("no `java` on the path (17 or newer is needed)")
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
    if not is_complete(cache() / version):
        maven = shutil.which("mvn") is not None
        reason = f"the jars of Apache Kafka {version} are not in {cache()}" + (
            "" if maven else ", and no `mvn` to fetch them"
        )
        fetched = with_tool(
            "get_kafka.py",
            "python tools/get_kafka.py (Maven and a network; the first run does it too)",
            otherwise="the first run fetches them (apt-get install maven; it takes a network)",
        )
        remedy = f"{fetched}, or TRIBUNAL_KAFKA=FOLDER where FOLDER/{version} has them"
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


def _program(version: str) -> Program:
    return Program(
        name="Apache Kafka",
        version=version,
        artifacts=(
            Artifact("org.apache.kafka", "kafka_2.13", version),
            Artifact("org.apache.kafka", "kafka-tools", version, NEEDLESS),
            Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
        ),
        logging=("log4j2.properties", LOGGING),
        remedy="no `mvn` on the path to fetch Apache Kafka with",
    )
