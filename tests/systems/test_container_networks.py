"""The networks of containers, by processes that live in them: entering them takes root."""

import socket
import subprocess
from collections.abc import Iterator

import pytest

from tribunal.clusters.api import ClusterError
from tribunal.clusters.namespaces.spaces import WITH_ROOT, environment
from tribunal.clusters.systems.container_links import ContainerNetworks, lacking

BEGIN = "ip link set lo up && ip link add own type veth peer name other && echo ready && exec sleep 300"
pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking() or "networks can be entered")


@pytest.fixture
def keeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a network of its own."""
    command = [*WITH_ROOT, "sh", "-c", BEGIN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_a_network_stays_what_it_was_when_its_process_has_ended(keeper: subprocess.Popen[bytes]) -> None:
    """The number of a process that has ended may be anybody's: rules for the run would stop that one's packets."""
    networks = ContainerNetworks({1: keeper.pid})
    try:
        keeper.kill()
        keeper.wait()

        assert "own" in networks.run(["ip", "link"], name="1")
        with networks.listener("1", "127.0.0.1", 4000) as listening:
            assert listening.getsockname() == ("127.0.0.1", 4000)
    finally:
        networks.close()


def test_the_clients_address_is_that_of_a_run_before_whose_connections_are_remembered() -> None:
    """Engines give out networks again, so whoever listens at their gateway comes back to the same address."""
    networks = ContainerNetworks({})
    with networks.listener("0", "127.0.0.1", 0) as listening:
        where = listening.getsockname()
        with socket.create_connection(where) as far:
            near, _ = listening.accept()
            near.close()  # who hangs up first waits for stragglers
            assert far.recv(1) == b""

    with networks.listener("0", *where) as again:
        assert again.getsockname() == where
        with pytest.raises(OSError, match="in use"):
            networks.listener("0", *where)


def test_a_process_that_has_ended_already_is_named() -> None:
    with pytest.raises(ClusterError, match="what keeps a container's network has ended"):
        ContainerNetworks({1: 0})
