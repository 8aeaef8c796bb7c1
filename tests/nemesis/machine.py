"""What a run could leave on this machine: looked for everywhere, not only where we think it is."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from tribunal.clusters.namespaces.spaces import search_path
from tribunal.clusters.nodes.leftovers import command_lines, node_processes
from tribunal.clusters.nodes.mounts import below


def output_of(*command):
    """Return what a tool says, nothing where it is missing or refuses."""
    tool = shutil.which(command[0], path=search_path())
    if tool is None:
        return ""
    return subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=False).stdout


def left_of(folder: Path) -> list[str]:
    """Return processes, mounts, loop devices, namespaces, links, firewall rules and qdiscs that a run of this folder left."""
    words = dict(command_lines())
    found = [f"process {pid}: {' '.join(words.get(pid, ['gone since']))}" for pid in node_processes(folder)]
    found += [f"mount {path}" for path in below(folder)]
    found += [f"loop device {line}" for line in output_of("losetup", "-a").splitlines() if str(folder) in line]
    found += [f"namespace {line}" for line in output_of("ip", "netns", "list").splitlines() if line]
    links = json.loads(output_of("ip", "-j", "link") or "[]")
    ours = [link["ifname"] for link in links if re.match(r"^v\d+$", link["ifname"])]
    found += [f"link {name}" for name in ours]
    found += [
        f"firewall {line}" for line in output_of("nft", "list", "tables").splitlines() if line.endswith(" tribunal")
    ]
    found += [f"qdisc {line}" for line in output_of("tc", "qdisc").splitlines() if "htb" in line or "netem" in line]
    return found


def ours(found: list[str]) -> list[str]:
    """Return what is surely ours: the machine may have namespaces and classes of its own."""
    return [line for line in found if not line.startswith(("namespace ", "qdisc "))] + [
        line for line in found if line.startswith("qdisc ") and " v" in line
    ]
