"""Runs Kafka's own integration tests, as they were published, on clusters of replog processes.

The jars of the tests and of JUnit come from Maven, as those of Kafka do. One class of Kafka's test fixture is replaced by ours (`java/`),
which is compiled here: it lies before Kafka's on the class path.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from tribunal.clusters.kafka.jars import LOG4J, LOGGING, VERSION, cache
from tribunal.clusters.maven_jars import Artifact, NoJars, Program, fetch, is_complete

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "java"
KAFKA = "org.apache.kafka"
JUNIT = "1.13.1"  # what Kafka 4.3.1 is tested with
TESTS = Program(
    name=f"the tests of Apache Kafka {VERSION}",
    version=VERSION,
    artifacts=(
        Artifact(KAFKA, "kafka-clients-integration-tests", VERSION, classifier="test"),
        Artifact(KAFKA, "kafka-clients", VERSION, classifier="test"),
        Artifact(KAFKA, "kafka_2.13", VERSION, classifier="test"),
        Artifact(KAFKA, "kafka-server-common", VERSION, classifier="test"),
        Artifact(KAFKA, "kafka-test-common-runtime", VERSION),
        Artifact("org.junit.platform", "junit-platform-console", JUNIT),
        Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
    ),
    logging=("log4j2.properties", LOGGING),
    remedy="no `mvn` on the path to fetch the tests of Apache Kafka with",
)
LOOKS_INSIDE = "LooksInside"  # our fixture's error
EACH = "120 s"
COMPILE_S = 120


class Outcome(StrEnum):
    """How a test of Kafka's ended on processes."""

    PASSED = "passed"
    FAILED = "failed"
    LOOKS_INSIDE = "looks inside"
    NOT_RUN = "not run"


class Ended(msgspec.Struct, frozen=True, order=True):
    """A test that was run. `why`: the first line of what it said, empty where it passed."""

    of: str
    test: str
    outcome: Outcome
    why: str


def jars_of_tests() -> Path:
    """Return the folder with the jars of the tests, fetching them when they are not there yet; `NoJars` when that is impossible."""
    if shutil.which("javac") is None:
        raise NoJars("no `javac` on the path to compile the fixture with (apt-get install openjdk-17-jdk-headless)")
    folder = cache().parent / "kafka-tests" / VERSION
    if not is_complete(folder):
        fetch(folder, TESTS)
    return folder


def run(classes: Sequence[str], jars: Path, limit_s: float) -> list[Ended]:
    """Run classes (names behind `org.apache.kafka.`, with `#method` one of its tests) and return how each of their tests ended."""
    with tempfile.TemporaryDirectory(prefix="kafka-own-") as folder:
        compiled, reports = Path(folder, "classes"), Path(folder, "reports")
        sources = sorted(map(str, SOURCES.rglob("*.java")))
        subprocess.run(
            ["javac", "-nowarn", "-d", str(compiled), "-cp", f"{jars}/*", *sources], check=True, timeout=COMPILE_S
        )
        chosen = [word for name in classes for word in ("-m" if "#" in name else "-c", f"{KAFKA}.{name}")]
        command = [
            "java", f"-Dreplog.python={sys.executable}", f"-Dlog4j2.configurationFile={jars / 'log4j2.properties'}", "-Dkafka.log.level=ERROR",
            "-Xmx800m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{compiled}:{jars}/*",
            "org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--details=none",
            "--config=junit.jupiter.extensions.autodetection.enabled=true",
            f"--config=junit.jupiter.execution.timeout.testtemplate.method.default={EACH}",
            f"--config=junit.jupiter.execution.timeout.test.method.default={EACH}",
            f"--reports-dir={reports}", *chosen,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
        found = sorted(_ended(reports))
    assert found, f"JUnit ran nothing, exit code {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return found


def _ended(reports: Path) -> Iterator[Ended]:
    for path in reports.glob("TEST-*.xml"):
        for case in ElementTree.parse(path).iter("testcase"):
            name = case.get("name", "").partition("(")[0]
            of = case.get("classname", "").removeprefix(f"{KAFKA}.")
            problem = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
            if problem is None:
                yield Ended(of, name, Outcome.PASSED, "")
                continue
            kind, why = problem.get("type", ""), (problem.get("message") or problem.text or "").strip()
            outcome = Outcome.NOT_RUN if problem.tag == "skipped" else Outcome.FAILED
            if kind.endswith(LOOKS_INSIDE):
                outcome = Outcome.LOOKS_INSIDE
            yield Ended(of, name, outcome, why.splitlines()[0] if why else kind)
