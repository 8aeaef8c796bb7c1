"""Which clusters can be secured: what cannot be is refused in one line before anything is made."""

import pytest

from tribunal.clusters.kinds import processes
from tribunal.harness.catalog import scenario_file
from tribunal.harness.cli.main import exit_code
from tribunal.harness.plan import made
from tribunal.harness.scenario import load

SECURED = ("--set", "cluster.security=sasl_ssl")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param((*SECURED, "--cluster", "simulated"), "it is for --cluster processes", id="simulator"),
        pytest.param((*SECURED, "--cluster", "apache-kafka"), "it is for --cluster processes", id="Apache Kafka"),
        pytest.param((*SECURED, "--mode", "zookeeper"), "security sasl_ssl is for KRaft mode", id="ZooKeeper mode"),
        pytest.param(("--set", "cluster.security=tls"), "security", id="unknown"),
        pytest.param(
            (*SECURED, "--set", "cluster.settings.super.users=User:ANONYMOUS"),
            "super.users is chosen by security sasl_ssl",
            id="another super user",
        ),
        pytest.param(
            ("--set", "steps=[{rotate-password: random broker, for: 1s}]"),
            "cannot change_password (--set cluster.security=sasl_ssl has it)",
            id="a fault of secured clusters",
        ),
    ],
)
def test_what_cannot_be_secured_is_refused_in_one_line(tmp_path, capsys, options, reason):
    assert exit_code(["run", "produce-consume", *options, "--out", str(tmp_path / "runs")]) == 64

    said = capsys.readouterr().err
    assert reason in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_machine_without_the_library_is_given_its_name(monkeypatch):
    spec = load(scenario_file("secured-produce-consume"), {}).spec

    assert processes.refused(spec) == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'cryptography'" in processes.refused(spec)


def test_any_scenario_can_be_secured_by_a_setting():
    scenario = load(scenario_file("produce-consume"), {"cluster.security": "sasl_ssl"})

    assert made(scenario, seed=1, cluster="processes", time_ms=None, mutants=()).spec.security == "sasl_ssl"
