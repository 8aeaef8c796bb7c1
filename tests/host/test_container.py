"""What a container of replog runs: a mounted file, what its environment says as Apache Kafka's image reads it, or a cluster of one."""

import pytest

from replog.config.properties import config_of, parsed
from replog.host.container import DATA, OF_ONE, as_properties, run, settings_of


def test_an_environment_that_says_nothing_means_a_cluster_of_one():
    given = {"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1g", "CLUSTER_ID": "mine"}

    assert settings_of(given) == {"log.dirs": DATA, **OF_ONE}
    config = config_of(as_properties(settings_of(given)).encode(), "f", cluster_id="mine", host="h")
    assert config.roles == {"broker", "controller"}
    assert [str(one.advertised) for one in config.listeners.brokers] == ["localhost:9092"]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        pytest.param("KAFKA_NODE_ID", "node.id", id="points"),
        pytest.param("KAFKA_A__B", "a_b", id="underscore"),
        pytest.param("KAFKA_SASL_ENABLED_MECHANISMS___X", "sasl.enabled.mechanisms-x", id="hyphen"),
    ],
)
def test_names_of_variables_are_those_of_settings(name, setting):
    assert settings_of({name: "7"}) == {"log.dirs": DATA, setting: "7"}  # and nothing of the cluster of one


def test_what_a_variable_says_is_read_as_it_is():
    said = {"a": "C:\\new", "b": "one\ntwo", "c": "x = y # z"}

    assert parsed(as_properties(said)) == said


def test_a_mounted_file_counts_and_not_the_environment(tmp_path, capsys):
    mounted = tmp_path / "server.properties"
    mounted.write_text(
        f"node.id=3\nprocess.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n"
    )

    code = run({"KAFKA_NODE_ID": "1"}, mounted, tmp_path / "made.properties")

    assert code == 2
    assert "controller.quorum.voters" in capsys.readouterr().err
    assert not (tmp_path / "made.properties").exists()


def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys):
    mounted = tmp_path / "server.properties"
    mounted.write_text("a=\\u12")

    assert run({}, mounted, tmp_path / "made.properties") == 2
    assert str(mounted) in capsys.readouterr().err
