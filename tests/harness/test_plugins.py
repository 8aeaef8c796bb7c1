"""Plugins: what ships is what is listed; a user's own and an installed distribution's are found; what cannot be used is one clear line."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

import tribunal.clusters.kinds
import tribunal.nemesis.faults
import tribunal.workloads.kinds
from tests.checkers.recorded import Run
from tribunal.checkers.api import properties
from tribunal.clusters.capabilities import FOREIGN, PROTOCOLS, RELEASED, Capability, FaultTarget, offered_by
from tribunal.clusters.clock import RunClock
from tribunal.clusters.composed_cluster import ComposedCluster
from tribunal.clusters.kafka import software as kafka_software
from tribunal.clusters.kinds import apache_kafka, containers, mixed, processes, ssh
from tribunal.clusters.links.relays import Links
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import all_clusters, faults, listing
from tribunal.harness.cli.complete import named
from tribunal.harness.cli.main import exit_code

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {
    "faults": tribunal.nemesis.faults,
    "workloads": tribunal.workloads.kinds,
    "clusters": tribunal.clusters.kinds,
}
# What a plugin of each sort may be made of: its folder, a module that exports such a value, what `tribunal list` calls it.
SORTS = [
    pytest.param("nemesis", "from tribunal.nemesis.faults.kill import FAULT", "faults", "kill", id="fault"),
    pytest.param("workloads", "from tribunal.workloads.kinds.bank import WORKLOAD", "workloads", "bank", id="workload"),
    pytest.param("clusters", "from tribunal.clusters.kinds.processes import KIND", "clusters", "ssh", id="cluster"),
    pytest.param(
        "checkers", "from tribunal.checkers.properties.watermarks import *", "checkers", "watermarks", id="property"
    ),
]
GROUPS = {"faults": "faults", "workloads": "workloads", "clusters": "clusters", "checkers": "properties"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory of a user's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own(folder, path, text):
    """Write a plugin of a user's own."""
    file = folder / "tribunal_plugins" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def install(folder, monkeypatch, group, module, text):
    """Install a distribution with one plugin."""
    site = folder / "site"
    (site / "my_chaos").mkdir(parents=True)
    (site / "my_chaos" / "__init__.py").touch()
    (site / "my_chaos" / f"{module}.py").write_text(text)
    (site / "my_chaos-1.0.dist-info").mkdir()
    (site / "my_chaos-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my-chaos\nVersion: 1.0\n")
    entry = f"[tribunal.{group}]\n{module.replace('_', '-')} = my_chaos.{module}\n"
    (site / "my_chaos-1.0.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(site))
    for name in ("my_chaos", f"my_chaos.{module}"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def said(capsys, *arguments):
    """Call the command, which refuses in one line; return the line."""
    assert exit_code(list(arguments)) == 64
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


@pytest.mark.parametrize("kind", SHIPPED)
def test_what_lies_in_a_folder_of_plugins_is_what_is_listed(kind, capsys, folder):
    (path,) = SHIPPED[kind].__path__
    there = {file.stem.replace("_", "-") for file in Path(path).glob("*.py")} - {"--init--"}

    assert exit_code(["list", kind, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)

    assert set(listed) == there
    assert all(listed.values())


def test_a_faults_name_is_its_modules():
    assert {name: fault.name for name, fault in faults().items()} == {name: name for name in faults()}


def test_every_capability_has_a_protocol_and_every_kind_the_methods_that_it_claims():
    assert set(PROTOCOLS) == set(Capability)
    claimed = {
        "processes": ComposedCluster,
        "containers": ComposedCluster,
        "ssh": ComposedCluster,
        "apache-kafka": ComposedCluster,
        "mixed": ComposedCluster,
        "simulated": SimulatedCluster,
    }
    looked_at = {name for name in dir(FaultTarget) if not name.startswith("_")}
    assert all_clusters()["simulated"].capabilities == SimulatedCluster.capabilities
    for kind, cluster in claimed.items():
        for capability in all_clusters()[kind].capabilities:
            wanted = {name for name in dir(PROTOCOLS[capability]) if not name.startswith("_")} - looked_at
            assert capability.value in wanted
            assert all(callable(getattr(cluster, name)) for name in wanted), f"{kind}: {capability}"


def test_a_cluster_offers_what_it_has_every_method_for():
    class KillsAndHalfPauses:
        def kill(self, node): ...

        def pause(self, node): ...

    class AlsoResumes(KillsAndHalfPauses):
        def resume(self, node): ...

    assert offered_by(KillsAndHalfPauses) == {Capability.KILL}
    assert offered_by(AlsoResumes) == {Capability.KILL, Capability.PAUSE}
    # No real disk fails in the midst of an append when it is asked to; no harness knows which bytes a running node writes.
    # Real brokers of ours have one log directory.
    simulated_only = {Capability.TEAR_APPEND, Capability.ROT, Capability.FAIL_DIRECTORY}
    assert offered_by(ComposedCluster) == set(Capability) - simulated_only - FOREIGN
    assert processes.KIND.capabilities == offered_by(ComposedCluster) - RELEASED


@pytest.mark.parametrize(
    "kind",
    [processes, containers, ssh, apache_kafka, mixed],
    ids=["processes", "containers", "ssh", "apache-kafka", "mixed"],
)
def test_a_composed_cluster_claims_what_its_kind_claims(kind, monkeypatch, tmp_path):
    async def compose_alone(run, environment, compose):
        return compose(Links(dict.fromkeys(run.spec.node_ids, 1)))

    def claimed(*_, capabilities, **__):
        return capabilities

    monkeypatch.setattr(kind, "launched", compose_alone)
    monkeypatch.setattr(kind, "composed", claimed, raising=False)  # which of the two a kind composes with
    monkeypatch.setattr(kind, "replog_cluster", claimed, raising=False)
    monkeypatch.setattr(kind, "obstacles", list, raising=False)
    monkeypatch.setattr(kafka_software, "kafka_jars", lambda _: tmp_path)
    monkeypatch.setattr(kafka_software, "java_for", lambda _: "java")
    monkeypatch.setattr(apache_kafka, "java_release", lambda: 17)

    spec = ClusterSpec(kafka=(2,) if kind.KIND.is_mixed else ())
    launching = kind.launch(spec, tmp_path, RunClock(), "tribunalPluginsQQQQQQQ")

    # Released Kafka's voters are fixed unless a run says otherwise.
    not_here = kind.KIND.missing(spec).keys() if kind in (apache_kafka, mixed) else frozenset()
    assert asyncio.run(launching) == kind.KIND.capabilities - not_here


def test_the_walk_to_a_new_capability_names_the_files_that_one_is_named_in():
    walk = (ROOT / "docs" / "contributing" / "a-new-fault.md").read_text()
    listed = set(re.findall(r"^\| `([\w/.]+)` \|", walk, re.MULTILINE)) - {"nemesis/faults/jam.py"}
    differing = {
        f"clusters/kinds/{kind}.py"
        for kind in ("apache_kafka", "containers", "existing", "mixed", "processes", "ssh", "system")
    }  # or lacking

    naming = set()
    for room in ("clusters", "harness", "workloads", "results", "checkers"):
        for path in (ROOT / room).rglob("*.py"):
            if re.search(r"\bCapability\.[A-Z]|\bCan[A-Z]\w+\(FaultTarget", path.read_text()):
                naming.add(str(path.relative_to(ROOT)))

    assert len(listed) == 3
    assert all((ROOT / path).is_file() for path in listed)
    methods_alone = {"clusters/composed_cluster.py", "clusters/simulated/capabilities.py"}
    asking = {"harness/plan.py"}  # whose messages are seen: of a trigger, not of a fault
    assert naming == listed - methods_alone | differing | asking


@pytest.mark.parametrize(("package", "text", "kind", "_"), SORTS)
def test_a_users_own_is_found_by_its_files_name(folder, package, text, kind, _):
    own(folder, f"{package}/my_own.py", f'"""Something of mine."""\n\n{text}\n')

    assert listing(kind)["my-own"] == "Something of mine."
    assert all(len(one.__path__) == 1 for one in SHIPPED.values())


@pytest.mark.parametrize(("package", "text", "kind", "_"), SORTS)
def test_what_a_distribution_brings_is_found_by_its_entry_point(folder, monkeypatch, package, text, kind, _):
    install(folder, monkeypatch, GROUPS[kind], "jam", f'"""Something installed."""\n\n{text}\n')

    assert listing(kind)["jam"] == "Something installed."


def test_what_plugins_share_begins_with_an_underscore(folder):
    own(folder, "nemesis/_shared.py", "from tribunal.nemesis.faults.kill import FAULT\n")
    for name in ("one", "other"):
        own(folder, f"nemesis/{name}.py", f'"""{name}."""\n\nfrom tribunal_plugins.nemesis._shared import FAULT\n')

    assert {"one", "other"} <= set(faults())
    assert not [name for name in faults() if "shared" in name]


def test_a_plugin_may_be_a_package(folder):
    own(
        folder,
        "nemesis/jam/__init__.py",
        '"""Of two files."""\n\nfrom tribunal_plugins.nemesis.jam.inner import FAULT\n',
    )
    own(folder, "nemesis/jam/inner.py", "from tribunal.nemesis.faults.kill import FAULT\n")
    own(folder, "nemesis/_shared/__init__.py", "")

    assert listing("faults")["jam"] == "Of two files."
    assert not {"inner", "shared"} & set(faults())


def test_another_working_directory_has_other_plugins(folder, monkeypatch):
    own(folder, "nemesis/mine.py", '"""Mine."""\nfrom tribunal.nemesis.faults.kill import FAULT\n')
    own(folder / "other", "nemesis/mine.py", '"""Another."""\nfrom tribunal.nemesis.faults.stop import FAULT\n')
    here = faults()["mine"]

    monkeypatch.chdir(folder / "other")

    assert here.name == "kill"
    assert faults()["mine"].name == "stop"


def test_what_is_judged_is_what_is_listed_in_each_working_directory(folder, monkeypatch):
    own(folder / "other", "checkers/mine.py", '"""Mine."""\nfrom tribunal.checkers.properties.watermarks import *\n')
    here = set(properties())

    monkeypatch.chdir(folder / "other")

    assert set(properties()) - here == {"mine"} == set(listing("checkers")) - {name.replace("_", "-") for name in here}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("def broken(:\n", "SyntaxError: invalid syntax", id="no Python"),
        pytest.param("import a_package_that_is_not_there\n", "ModuleNotFoundError: No module named 'a_package", id="import"),
        pytest.param("\n\nx = 1 / 0\n", "ZeroDivisionError: division by zero (jam.py, line 3)", id="raises"),
        pytest.param("NEEDS = {'kill'}\n", "it exports no FAULT", id="no value"),
        pytest.param("FAULT = 'kill'\n", "FAULT is a str, not a Fault", id="another value"),
        pytest.param(
            "import msgspec\nfrom tribunal.nemesis.api import Fault\n"
            "def inject(cluster, node, options): ...\n"
            "FAULT = Fault(options=msgspec.Struct, inject=inject)\n",
            "inject: annotate its first parameter with what it asks of a cluster (jam.py, line 4)",
            id="asks for nothing",
        ),
        pytest.param(
            "import msgspec\nfrom tribunal.clusters.capabilities import CanKill\nfrom tribunal.nemesis.api import Fault\n"
            "def inject(cluster: CanKill, node, options): ...\n"
            "FAULT = Fault(options=msgspec.Struct, inject=inject, modes=('zk',))\n",
            "modes are kraft and zookeeper",
            id="no such mode",
        ),
    ],
)  # fmt: skip
def test_a_plugin_that_cannot_be_used_is_one_line_with_file_and_reason(folder, capsys, text, reason):
    own(folder, "nemesis/jam.py", text)

    line = said(capsys, "list", "faults")

    assert line.startswith("tribunal: plugin tribunal_plugins/nemesis/jam.py: ")
    assert reason in line
    assert exit_code(["list", "workloads"]) == 0


@pytest.mark.parametrize(
    ("package", "value", "kind"),
    [
        pytest.param("nemesis", "FAULT", "faults", id="fault"),
        pytest.param("workloads", "WORKLOAD", "workloads", id="workload"),
        pytest.param("clusters", "KIND", "clusters", id="cluster"),
        pytest.param("checkers", "PROPERTY", "checkers", id="property"),
    ],
)
def test_a_plugin_of_another_type_is_not_listed(folder, capsys, package, value, kind):
    own(folder, f"{package}/jam.py", f"{value} = 'jam'\n")

    assert f"tribunal_plugins/{package}/jam.py: {value} is a str" in said(capsys, "list", kind)


@pytest.mark.parametrize("engine", ["inline", "spark", "spark-sql"])
def test_a_property_that_cannot_be_used_is_refused_before_anything_is_judged(folder, capsys, engine):
    run_dir = Run(folder / "run").finish()
    own(folder, "checkers/jam.py", "x = 1 / 0\n")

    line = said(capsys, "check", str(run_dir), "--engine", engine)

    assert line.startswith("tribunal: plugin tribunal_plugins/checkers/jam.py: ZeroDivisionError")
    assert not (run_dir / "verdict.json").exists()


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        pytest.param("from tribunal.nemesis.faults.kill import FAULT\n", ["jam"], id="whole"),
        pytest.param("x = 1 / 0\n", [], id="broken"),
    ],
)
def test_a_tab_offers_nothing_where_a_plugin_is_broken(folder, text, offered):
    own(folder, "nemesis/jam.py", text)

    assert list(dict(named("faults")("ja"))) == offered


def test_a_distributions_broken_plugin_names_the_distribution(folder, monkeypatch, capsys):
    install(folder, monkeypatch, "faults", "jam", "raise OSError('no luck')\n")

    line = said(capsys, "list", "faults")

    assert "plugin my_chaos.jam of my-chaos (entry point 'jam' of tribunal.faults): OSError: no luck" in line


@pytest.mark.parametrize(("package", "text", "kind", "shipped"), SORTS)
def test_nothing_is_called_as_what_ships(folder, capsys, package, text, kind, shipped):
    own(folder, f"{package}/{shipped}.py", f"{text}\n")

    line = said(capsys, "list", kind)

    assert f"tribunal_plugins/{package}/{shipped}.py: there is a" in line
    assert f"{shipped!r} already, of tribunal itself: give it another name" in line


@pytest.mark.parametrize("others", [pytest.param((), id="what ships"), pytest.param(("my_own",), id="one's own")])
def test_a_hyphen_in_a_files_name_makes_no_other_name(folder, capsys, others):
    """Both are `slow-fsync`, or `my-own`, to who names them: one of them would be passed over."""
    hyphenated = "my-own" if others else "slow-fsync"
    for name in (*others, hyphenated):
        own(folder, f"nemesis/{name}.py", "from tribunal.nemesis.faults.kill import FAULT\n")

    line = said(capsys, "list", "faults")

    assert f"there is a fault {hyphenated!r} already" in line


def test_no_scenario_is_called_as_one_that_ships(folder, capsys):
    own(folder, "scenarios/bank.yaml", "scenario: bank\n")

    line = said(capsys, "run", "bank", "--cluster", "simulated")

    assert "tribunal_plugins/scenarios/bank.yaml: there is a scenario 'bank' already" in line


def test_nothing_is_called_as_what_is_installed(folder, monkeypatch, capsys):
    install(folder, monkeypatch, "faults", "jam", "from tribunal.nemesis.faults.kill import FAULT\n")
    own(folder, "nemesis/jam.py", "from tribunal.nemesis.faults.kill import FAULT\n")

    line = said(capsys, "list", "faults")

    assert "tribunal_plugins/nemesis/jam.py: there is a fault 'jam' already, of my_chaos.jam of my-chaos" in line
