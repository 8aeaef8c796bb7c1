"""Apache ZooKeeper as plain jars: Debian's package where it is installed, else fetched by the machine's Maven.

The jars go to `~/.cache/tribunal/zookeeper/<version>` (or `TRIBUNAL_ZOOKEEPER`), outside the repository. `apt-get install zookeeper` does as well: its jars lie in /usr/share/java.
"""

import os
import shutil
from pathlib import Path
from typing import Final

from tribunal.clusters.maven_jars import Artifact, NoJars, Program, fetch, is_complete

VERSION: Final = "3.9.3"
DEBIAN: Final = Path("/usr/share/java/zookeeper.jar")
# (The artifact leaves out what its own distribution brings: metrics, compression of snapshots, a place for log lines.)
BESIDE: Final = (
    Artifact("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    Artifact("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    Artifact("ch.qos.logback", "logback-classic", "1.2.13"),
)
LOGGING: Final = """\
<configuration>
  <appender name="E" class="ch.qos.logback.core.ConsoleAppender"><target>System.err</target>
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="E"/></root>
</configuration>
"""


def class_path(version: str = VERSION) -> str:
    """Return the Java class path of a ZooKeeper server; `NoJars` when there is none to be had."""
    if shutil.which("java") is None:
        raise NoJars("no `java` on the path (11 or newer is needed)")
    folder = cache() / version
    if is_complete(folder):
        return f"{folder}:{folder}/*"
    if DEBIAN.exists():
        return f"/etc/zookeeper/conf:{DEBIAN.parent}/*"
    fetch(folder, _program(version))
    return f"{folder}:{folder}/*"


def cache() -> Path:
    """Return where jars are kept, one folder a version."""
    return Path(os.environ.get("TRIBUNAL_ZOOKEEPER", "~/.cache/tribunal/zookeeper")).expanduser()


def _program(version: str) -> Program:
    return Program(
        name="Apache ZooKeeper",
        version=version,
        artifacts=(Artifact("org.apache.zookeeper", "zookeeper", version), *BESIDE),
        logging=("logback.xml", LOGGING),
        remedy="no ZooKeeper here: install Debian's package zookeeper, or `mvn` to fetch it with",
    )
