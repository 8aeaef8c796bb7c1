"""What the judge says of faults by their names must be of faults that there are."""

import pkgutil

from tribunal.checkers.judge.incarnations import BEGUN_BEFORE, CARRIES_ALL, OF_ALL_BROKERS, OF_MANY
from tribunal.nemesis import faults


def test_the_rules_of_what_a_fault_hinders_name_faults_that_exist() -> None:
    named = {one.replace("-", "_") for one in CARRIES_ALL | OF_MANY | OF_ALL_BROKERS | BEGUN_BEFORE}

    assert named <= {module.name for module in pkgutil.iter_modules(faults.__path__)}
