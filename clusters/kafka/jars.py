"""Apache Kafka as plain jars, fetched by the machine's Maven: a system under test, a reference, and its command line tools.

The jars (in a checkout `python tools/get_kafka.py` fetches them beforehand) go to `~/.cache/tribunal/kafka/<version>` (or `TRIBUNAL_KAFKA`), outside the repository, and are shared by tests and
benchmarks. What is asked of Maven is the released `kafka_2.13` (broker and controller),
`kafka-tools` (command line) and the bridge from slf4j to the log4j that Kafka brings; Kafka Connect and its web server are left out.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from tribunal.clusters.kafka.java import no_java_for
from tribunal.clusters.kafka.releases import NEWEST, Release, release
from tribunal.clusters.maven_jars import Artifact, NoJars, Program, fetch, is_complete
from tribunal.clusters.obstacles import Obstacle, with_tool

VERSION: Final = NEWEST
LOG4J: Final = "2.25.4"  # what Kafka 4.3.1 itself brings
RELOAD4J: Final = "1.7.36"
LOG4J_2_FILE: Final = "log4j2.properties"
LOG4J_1_FILE: Final = "log4j.properties"
JAVA: Final = 17  # runs all of them
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
LOGGING_OF_LOG4J_1: Final = """\
log4j.rootLogger=WARN, E
log4j.appender.E=org.apache.log4j.ConsoleAppender
log4j.appender.E.target=System.err
log4j.appender.E.layout=org.apache.log4j.PatternLayout
log4j.appender.E.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def kafka_jars(version: str = VERSION) -> Path:
    """Return the folder with the jars, fetching them when they are not there yet; `NoJars` when that is impossible."""
    folder = cache() / version
    if reason := no_java_for(release(version)):
        raise NoJars(reason)
    if not is_complete(folder):
        fetch(folder, _program(release(version)))
    return folder


def cache() -> Path:
    """Return where jars are kept, one folder a version."""
    return Path(os.environ.get("TRIBUNAL_KAFKA", "~/.cache/tribunal/kafka")).expanduser()


def obstacles(version: str = VERSION) -> list[Obstacle]:
    """Say why Apache Kafka cannot be run here; nothing is fetched to find out."""
    found = []
    if reason := no_java_for(release(version)):
        found.append(Obstacle(reason=reason, remedy=f"apt-get install openjdk-{JAVA}-jre-headless"))
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


def held_versions() -> list[str]:
    """Return the versions whose jars are here, whole."""
    folders = cache().iterdir() if cache().is_dir() else ()
    return sorted(folder.name for folder in folders if is_complete(folder))


def logging_option(jars: Path) -> str:
    """Return the option by which a JVM finds the logging of these jars."""
    modern = jars / LOG4J_2_FILE
    return (
        f"-Dlog4j2.configurationFile={modern}"
        if modern.exists()
        else f"-Dlog4j.configuration=file:{jars / LOG4J_1_FILE}"
    )


def _program(chosen: Release) -> Program:
    return Program(
        name=f"Apache Kafka {chosen.name}",
        version=chosen.name,
        artifacts=_artifacts(chosen),
        logging=(LOG4J_2_FILE, LOGGING) if chosen.logs_by_log4j_2 else (LOG4J_1_FILE, LOGGING_OF_LOG4J_1),
        remedy="no `mvn` on the path to fetch Apache Kafka with",
    )


def _artifacts(chosen: Release) -> tuple[Artifact, ...]:
    core = Artifact("org.apache.kafka", f"kafka_{chosen.scala}", chosen.name)
    tools = [Artifact("org.apache.kafka", "kafka-tools", chosen.name, NEEDLESS)] if chosen.has_tools_apart else []
    if chosen.logs_by_log4j_2:
        return (core, *tools, Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J))
    return (core, *tools, Artifact("org.slf4j", "slf4j-reload4j", RELOAD4J))
