"""The process that Spark's Python workers are forked from: it imports once what every worker needs.

A worker that imports numpy, pyarrow and the kernels itself costs a second of CPU; a fork shares them.
"""

import gc

from pyspark.daemon import manager

from tribunal.checkers.api import properties
from tribunal.checkers.judge import judge as work

PRELOADED = (work,)

if __name__ == "__main__":
    properties()
    gc.freeze()  # a worker looks for garbage after every task: what all of them share is none
    manager()
