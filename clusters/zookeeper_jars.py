"""Apache ZooKeeper as plain jars: Debian's package where it is installed, else fetched by the machine's Maven.

The jars go to `~/.cache/tribunal/zookeeper/<version>` (or `TRIBUNAL_ZOOKEEPER`), outside the repository. A folder is complete when it
has a `VERSION` file, as Kafka's is (`kafka_jars.py`). `apt-get install zookeeper` does as well: its jars lie in /usr/share/java.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from clusters.kafka_jars import COPY, NoKafka, _dependency, _run_maven

VERSION: Final = "3.9.3"
DEBIAN: Final = Path("/usr/share/java/zookeeper.jar")
# (The artifact leaves out what its own distribution brings: metrics, compression of snapshots, a place for log lines.)
BESIDE: Final = (
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("ch.qos.logback", "logback-classic", "1.2.13"),
)
LOGGING: Final = """\
<configuration>
  <appender name="E" class="ch.qos.logback.core.ConsoleAppender"><target>System.err</target>
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="E"/></root>
</configuration>
"""


class NoZooKeeper(Exception):
    """ZooKeeper cannot be had here; the message says why in one line."""


def class_path(version: str = VERSION) -> str:
    """Return the Java class path of a ZooKeeper server; `NoZooKeeper` when there is none to be had."""
    if shutil.which("java") is None:
        raise NoZooKeeper("no `java` on the path (11 or newer is needed)")
    folder = cache() / version
    if (folder / "VERSION").exists():
        return f"{folder}:{folder}/*"
    if DEBIAN.exists():
        return f"/etc/zookeeper/conf:{DEBIAN.parent}/*"
    _fetch(folder, version)
    return f"{folder}:{folder}/*"


def cache() -> Path:
    """Return where jars are kept, one folder a version."""
    return Path(os.environ.get("TRIBUNAL_ZOOKEEPER", "~/.cache/tribunal/zookeeper")).expanduser()


def _fetch(folder: Path, version: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoZooKeeper("no ZooKeeper here: install Debian's package zookeeper, or `mvn` to fetch it with")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
        project, jars = Path(scratch, "pom.xml"), Path(scratch, "jars")
        project.write_text(_project(version))
        try:
            _run_maven(
                [maven, "-q", "-B", "-f", str(project), COPY, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
            )
        except NoKafka as problem:
            raise NoZooKeeper(str(problem).replace("Apache Kafka", "Apache ZooKeeper")) from None
        (jars / "logback.xml").write_text(LOGGING)
        (jars / "VERSION").write_text(version + "\n")
        if not (folder / "VERSION").exists():  # somebody may have been quicker
            jars.rename(folder)


def _project(version: str) -> str:
    wanted = (("org.apache.zookeeper", "zookeeper", version), *BESIDE)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tribunal</groupId><artifactId>zookeeper-jars</artifactId><version>1</version>"
        "<packaging>pom</packaging>"
        f"<dependencies>{''.join(_dependency(*each, []) for each in wanted)}</dependencies></project>"
    )
