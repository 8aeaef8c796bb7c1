"""What we export is read by the tools it is for: Clojure's own EDN reader, and Elle, which then finds what we find.

Maven brings both: Clojure from Maven Central, Elle from Clojars. Where one of them cannot be had the test says why it is skipped.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkers.recorded import MS, Run
from tribunal.harness.cli.main import exit_code

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
CLOJURE = ("org.clojure", "clojure", "1.12.0")
ELLE = (("elle", "elle", "0.2.4"), ("spootnik", "unilog", "0.7.32"))  # Elle needs unilog and does not say so
READ = """
(require '[clojure.edn :as edn])
(def ops (with-open [r (java.io.PushbackReader. (clojure.java.io/reader (first *command-line-args*)))]
           (vec (take-while #(not= % ::end) (repeatedly #(edn/read {:eof ::end} r))))))
"""
COUNT = """
(assert (every? #(and (map? %) (int? (:process %)) (keyword? (:f %)) (vector? (:value %)) (int? (:index %))) ops))
(prn (frequencies (map :type ops)))
"""
CHECK = """
(require '[elle.list-append :as a] '[jepsen.history :as h])
(let [r (a/check {:consistency-models [:strict-serializable]} (h/history ops))]
  (prn (:valid? r) (sort (map name (:anomaly-types r)))))
"""


def classpath(folder: Path, *artifacts: tuple[str, str, str]) -> str:
    """Let Maven fetch artifacts and what they need; skip the test when it cannot."""
    if shutil.which("mvn") is None:
        pytest.skip("no Maven on this machine")
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    clojars = (
        "<repository><id>clojars</id><url>https://repo.clojars.org/</url></repository>" if len(artifacts) > 1 else ""
    )
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version>"
        f"<repositories>{clojars}</repositories><dependencies>{wanted}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        reasons = [line for line in done.stdout.splitlines() if "ERROR" in line]
        pytest.skip(f"Maven cannot fetch {artifacts[0][1]}: {reasons[0][-200:] if reasons else done.stderr[-200:]}")
    return (folder / "classpath").read_text().strip()


def clojure(folder: Path, path: str, program: str, history: Path) -> str:
    (folder / "program.clj").write_text(READ + program)
    command = ["java", "-cp", path, "clojure.main", "program.clj", str(history)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


def exported(folder: Path, run: Run) -> Path:
    run.finish()
    assert exit_code(["export", str(run.run_dir), "--format", "edn", "-o", str(folder / "history.edn")]) == 0
    return folder / "history.edn"


def append(run: Run, process: int, begin: int, *steps: tuple[str, int, int | None]) -> None:
    operations = [
        {"kind": kind, "topic": "t", "partition": key, "log_offset": None, "value": value} for kind, key, value in steps
    ]
    run.recorder.row(
        "txns", process=process, txn_id=f"x{process}", begin_ns=begin * MS, end_ns=(begin + 10) * MS,
        outcome="committed", operations=operations,
    )  # fmt: skip


def test_clojure_reads_what_we_export(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    values = [run.send(sequence, 100 + sequence // 2) for sequence in range(4)]
    run.final_read(dict(enumerate(values)))
    history = exported(tmp_path, run)

    assert clojure(tmp_path, classpath(tmp_path, CLOJURE), COUNT, history) == "{:invoke 6, :ok 6}"


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        pytest.param(None, 'false ("G2-item")', id="write skew"),
        pytest.param(1, "true ()", id="one after the other"),
    ],
)
def test_elle_judges_what_we_export(tmp_path: Path, seen: int | None, verdict: str) -> None:
    run = Run(tmp_path / "run")
    append(run, 0, 1, ("append", 1, 1), ("read", 2, seen))
    append(run, 1, 2, ("append", 2, 1), ("read", 1, None))
    append(run, 2, 50, ("read", 1, 1), ("read", 2, 1))
    history = exported(tmp_path, run)

    assert clojure(tmp_path, classpath(tmp_path, *ELLE, CLOJURE), CHECK, history) == verdict
