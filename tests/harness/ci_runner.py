"""Stands in for a CI server: runs the jobs of a workflow file step by step, each machine being an empty folder.

What a server keeps between machines and nights (caches, artefacts, the page of a run) are folders here. Python is an environment that has what
the distribution depends on, but not the distribution: the steps have to install it. Nothing is downloaded.
"""

import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import yaml

OURS = re.compile(r"replog-|_editable_impl_replog|a1_coverage|__pycache__")
BUDGET = re.compile(r"--budget \d+m")


class Ended(NamedTuple):
    """How a job ended on one machine.

    red:   the exit code of the step that failed, 0 when none did.
    said:  what its steps printed.
    """

    job: str
    shard: str
    red: int
    said: str


def environment(folder: Path) -> Path:
    """Make a Python environment with everything that this one has, but without the distribution; return its folder."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = f"lib/python3.{sys.version_info.minor}/site-packages"
    for entry in (Path(sys.prefix) / packages).iterdir():
        if not OURS.match(entry.name):
            (folder / packages / entry.name).symlink_to(entry)
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {folder}/bin/python -m pip --disable-pip-version-check "$@"\n')
    pip.chmod(0o755)
    return folder


class Server:
    """One CI server: `repository` is what a checkout gives, the rest is what it keeps.

    budget:  what stands in the place of a budget of minutes.
    """

    def __init__(self, folder: Path, repository: Path, *, budget: str) -> None:
        self._repository, self._budget = repository, budget
        self._machines, self._caches = folder / "machines", folder / "caches"
        self.artefacts, self.page = folder / "artefacts", folder / "page.md"
        self._run = 0

    def github(self, workflow: Path, *jobs: str) -> list[Ended]:
        """Run these jobs of a workflow of GitHub Actions, those that others need behind them; return how each ended."""
        described = yaml.safe_load(workflow.read_text())["jobs"]
        self._begin()
        ended: list[Ended] = []
        for name in jobs:
            needed = described[name].get("needs", [])
            assert set([needed] if isinstance(needed, str) else needed) <= {one.job for one in ended}
            if any(one.red for one in ended) and described[name].get("if") != "always()":
                continue
            ended += [self._github_job(name, described[name], matrix) for matrix in _matrix(described[name])]
        return ended

    def gitlab(self, pipeline: Path) -> list[Ended]:
        """Run the jobs of a scheduled pipeline of GitLab in the order of the file; return how each ended."""
        described = {name: job for name, job in yaml.safe_load(pipeline.read_text()).items() if "script" in job}
        self._begin()
        ended: list[Ended] = []
        for name, job in described.items():
            assert set(job.get("needs", [])) <= {one.job for one in ended}
            (rule,) = job["rules"]
            assert rule["if"] == '$CI_PIPELINE_SOURCE == "schedule"'
            if any(one.red for one in ended) and rule.get("when") != "always":
                continue
            count = job.get("parallel", 1)
            ended += [self._gitlab_job(name, job, index, count) for index in range(1, count + 1)]
        return ended

    def _begin(self) -> None:
        self._run += 1
        shutil.rmtree(self.artefacts, ignore_errors=True)
        self.artefacts.mkdir(parents=True)
        self.page.write_text("")

    def _machine(self, name: str) -> "Machine":
        return Machine(self._machines / str(self._run) / name, page=self.page, budget=self._budget)

    def _github_job(self, name: str, job: dict, matrix: dict[str, object]) -> Ended:
        values = {f"matrix.{key}": str(value) for key, value in matrix.items()} | {"github.run_id": str(self._run)}
        machine = self._machine("-".join([name, *map(str, matrix.values())]))
        for step in job["steps"]:
            if machine.red and step.get("if") not in ("always()", "failure()"):
                continue
            if step.get("if") == "failure()" and not machine.red:
                continue
            if "run" in step:
                machine.shell(["bash", "-e", "-c", _filled(step["run"], values)])
            else:
                options = {key: _filled(str(value), values) for key, value in step.get("with", {}).items()}
                self._action(step["uses"].partition("@")[0], options, machine)
        return Ended(name, str(matrix.get("shard", "")), machine.red, machine.said)

    def _action(self, action: str, options: dict[str, str], machine: "Machine") -> None:
        at = machine.workspace / options.get("path", "")
        match action:
            case "actions/checkout":
                shutil.copytree(self._repository, machine.workspace, symlinks=True, dirs_exist_ok=True)
            case "actions/setup-python":
                assert options["python-version"] == "3.11"
                machine.has_python()
            case "actions/cache/restore":
                kept = [self._caches / options["key"]]
                kept += sorted(self._caches.glob(f"{options['restore-keys']}*"), key=lambda path: path.stat().st_mtime)
                found = [path for path in kept if path.is_dir()]
                if found:
                    shutil.copytree(found[-1], at, dirs_exist_ok=True)
            case "actions/cache/save":
                if at.exists():
                    shutil.copytree(at, self._caches / options["key"])
            case "actions/upload-artifact":
                if at.exists():
                    shutil.copytree(at, self.artefacts / options["name"])
            case "actions/download-artifact":
                shutil.copytree(self.artefacts, at)
            case _:
                raise AssertionError(f"{action}: an action that this server does not know; add it to {__file__}")

    def _gitlab_job(self, name: str, job: dict, index: int, count: int) -> Ended:
        machine = self._machine(f"{name}-{index}")
        shutil.copytree(self._repository, machine.workspace, symlinks=True)
        assert job["image"] == "python:3.11"
        machine.has_python()
        variables = {"CI_NODE_INDEX": str(index), "CI_NODE_TOTAL": str(count), "CI_PROJECT_DIR": str(machine.workspace)}
        machine.variables |= variables | {
            key: _expanded(value, variables) for key, value in job.get("variables", {}).items()
        }
        cached = job.get("cache", {})
        for kept in self._kept(cached, variables):
            shutil.copytree(kept, machine.workspace, dirs_exist_ok=True)
        for _ in job.get("needs", []):
            shutil.copytree(self.artefacts, machine.workspace, dirs_exist_ok=True)
        machine.shell(["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])])
        machine.shell(["bash", "-eo", "pipefail", "-c", "\n".join(job.get("after_script", []))], counts=False)
        for kept in self._kept(cached, variables, anew=True):
            _copy(cached["paths"], machine.workspace, kept)
        if not machine.red or job["artifacts"].get("when") == "always":
            reports = list(job["artifacts"].get("reports", {}).values())
            assert all((machine.workspace / path).is_file() for path in reports), reports
            _copy(job["artifacts"]["paths"], machine.workspace, self.artefacts)
        return Ended(name, str(index), machine.red, machine.said)

    def _kept(self, cache: dict, variables: dict[str, str], *, anew: bool = False) -> Iterator[Path]:
        """Yield the folder of a job's cache, if it has one and it is there; `anew`: an empty one."""
        if not cache:
            return
        folder = self._caches / _expanded(cache["key"], variables)
        if anew:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        if folder.is_dir():
            yield folder


class Machine:
    """A machine of its own for one job: an empty workspace, an empty home, and a shell."""

    def __init__(self, folder: Path, *, page: Path, budget: str) -> None:
        self.workspace, self._folder, self._budget = folder / "workspace", folder, budget
        self.red, self.said = 0, ""
        (folder / "home").mkdir(parents=True)
        self.variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "PIP_NO_INDEX": "1", "LANG": "C.UTF-8",
            "GITHUB_STEP_SUMMARY": str(page), "PIP_CACHE_DIR": str(folder / "pip"),
        }  # fmt: skip

    def has_python(self) -> None:
        """Put a Python of this job's own before all others; where a checkout sets up `.venv`, that is there too."""
        self.workspace.mkdir(exist_ok=True)
        self.variables["PATH"] = f"{environment(self._folder / 'python')}/bin:{self.variables['PATH']}"
        if (self.workspace / "Makefile").is_file():
            environment(self.workspace / ".venv")

    def shell(self, command: list[str], *, counts: bool = True) -> None:
        """Run one step; `counts`: its failure is the job's."""
        *how, script = command
        script = BUDGET.sub(f"--budget {self._budget}", script)
        done = subprocess.run(
            [*how, script], cwd=self.workspace, env=self.variables, check=False, timeout=600, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said += f"$ {script}\n{done.stdout}= {done.returncode}\n"
        if counts and not self.red:
            self.red = done.returncode


def _matrix(job: dict) -> list[dict[str, object]]:
    axes = job.get("strategy", {}).get("matrix", {})
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ *([\w.]+) *\}\}", lambda found: values[found[1]], text)


def _expanded(text: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], text)


def _copy(paths: list[str], source: Path, target: Path) -> None:
    for path in paths:
        if (source / path).is_dir():
            shutil.copytree(source / path, target / path, dirs_exist_ok=True)
