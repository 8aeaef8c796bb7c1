"""Hosts for tests: several sshd, each in a network namespace of this machine, and a place from where they are reached."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tribunal.clusters.api import CLIENTS
from tribunal.clusters.namespaces.network import address, lay_out
from tribunal.clusters.namespaces.spaces import WITH_ROOT, Namespaces, search_path, way_in

ROOT = Path(__file__).parents[2]
NODES = (1, 2, 3, 101, 102, 103)
SSHD = shutil.which("sshd", path=search_path())
KEYGEN = shutil.which("ssh-keygen")
SSHD_CONFIG = """
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
LogLevel ERROR
"""


def why_not():
    if os.geteuid() != 0:
        return "only root's sshd can change users"
    if SSHD is None or KEYGEN is None:
        return "no sshd: apt-get install openssh-server"
    return way_in() if isinstance(way_in(), str) else ""


def a_key(path):
    subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


class Town:
    """Hosts with an sshd each, and a place from where they are reached."""

    def __init__(self, folder):
        self.folder = folder
        self.spaces = Namespaces(folder, WITH_ROOT)
        self.daemons = []

    def __enter__(self):
        self.spaces.open()
        lay_out(self.spaces, [*NODES, CLIENTS])
        self.spaces.run(["sh", "-c", "mount -t tmpfs tmpfs /run && mkdir /run/sshd"])
        self.host_key = a_key(self.folder / "host")
        a_key(self.folder / "user")
        for node in NODES:
            config = self.folder / f"sshd-{node}.conf"
            config.write_text(SSHD_CONFIG.format(address=address(node), folder=self.folder))
            self.daemons.append(self.start(str(node), SSHD, "-D", "-e", "-f", str(config)))
        self.hosts = self.write_hosts("hosts.toml", self.host_key)
        for node in NODES:
            wait_for_sshd(self, node)
        return self

    def start(self, place, *command, **options):
        return subprocess.Popen([*self.spaces.command(place), *command], **options)

    def write_hosts(self, name, host_key, *, of_one=None, **changes):
        lines = [f'relay = "{address(CLIENTS)}"']
        for node in NODES:
            entry = (
                {
                    "address": address(node),
                    "key": str(self.folder / "user"),
                    "host_key": host_key,
                    "python": sys.executable,
                    "directory": str(self.folder / "remote"),
                }
                | changes
                | (of_one or {}).get(node, {})
            )
            lines += ["[[node]]", f"id = {node}", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        return path

    def story(self, wanted, hosts=None, run="run", controllers=1, **options):
        return self.start(
            str(CLIENTS), sys.executable, "-m", "tests.clusters.ssh_story", str(hosts or self.hosts),
            str(self.folder / run), str(controllers), json.dumps(wanted),
            cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, **options,
        )  # fmt: skip

    def reported(self, wanted, **options):
        with self.story(wanted, **options) as story:
            said = story.stdout.read()
        return json.loads(said.splitlines()[-1])

    def __exit__(self, *error):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        self.spaces.close()


def wait_for_sshd(town, node):
    for _ in range(200):
        knock = subprocess.run(
            [*town.spaces.command(str(CLIENTS)), "bash", "-c", f"exec 3<>/dev/tcp/{address(node)}/22"],
            check=False, capture_output=True,
        )  # fmt: skip
        if knock.returncode == 0:
            return
        time.sleep(0.05)  # noqa: TID251
    raise AssertionError(f"no sshd on {address(node)}")
