"""The options of commands that run seeds on a Spark cluster, and the runner that they ask for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import msgspec
import typer

from tribunal.clusters.simulated.guards import Guards
from tribunal.harness.campaign.runners import LocalRunner, Runner
from tribunal.harness.cli.usage import UsageError, spark_at

Master = Annotated[str | None, typer.Option(help="Spark to run seeds on: local[N] or spark://HOST:PORT.")]
Remote = Annotated[str | None, typer.Option(help="Spark Connect to run seeds on: sc://HOST:PORT.")]
PythonThere = Annotated[
    str, typer.Option(help="Python on the workers that has what tribunal needs; default: the one Spark runs there.")
]
WithPackages = Annotated[
    bool, typer.Option("--with-packages", help="Send this machine's packages to the workers: same platform and Python.")
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Seeds at once; default: one a core, of this machine or of the cluster.")
]

RoundSize = Annotated[
    int,
    typer.Option(
        "--round",
        min=1,
        help="Runs of a search that are chosen at once, for clusters of more cores; another size gives other runs.",
    ),
]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where seeds are to run.

    cluster:  what a Spark session is opened with; None: this machine.
    """

    cluster: str | None
    python: str
    with_packages: bool


def place(master: str | None, remote: str | None, python: str, *, with_packages: bool) -> Place:
    """Return the place that options ask for. Raises `UsageError`."""
    cluster = spark_at(master, remote)
    if cluster is None and (python or with_packages):
        raise UsageError("--python and --with-packages: go with --master or --remote, whose workers they are for")
    return Place(cluster=cluster, python=python, with_packages=with_packages)


@contextmanager
def runner_at(where: Place, jobs: int | None, guards: Guards | None = None) -> Iterator[Runner]:
    """Give what runs plans there. Raises NoSpark or NoJava.

    guards:  which are counted on this machine; a cluster's workers count them in any case.
    """
    if where.cluster is None:
        yield LocalRunner(jobs or _cores(), guards)
        return
    from tribunal.checkers.spark.session import session
    from tribunal.harness.campaign.shipped import archive
    from tribunal.harness.campaign.sweep_on_spark import SparkRunner

    with session(where.cluster, partial(archive, with_packages=where.with_packages)) as spark:
        yield SparkRunner(spark, python=where.python, jobs=jobs)


def _cores() -> int:
    return os.cpu_count() or 1
