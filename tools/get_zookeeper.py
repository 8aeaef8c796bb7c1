"""Find or fetch Apache ZooKeeper as plain jars, before anything needs them (`clusters/zookeeper/jars.py`).

python tools/get_zookeeper.py             # prints the class path of a server, fetching the jars the first time
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tribunal.clusters.maven_jars import NoJars
from tribunal.clusters.zookeeper.jars import VERSION, class_path


def main() -> int:
    """Fetch, and print the class path."""
    arguments = argparse.ArgumentParser(description="Find or fetch Apache ZooKeeper as plain jars.")
    arguments.add_argument("--version", default=VERSION, help="a released version (default: %(default)s)")
    try:
        print(class_path(arguments.parse_args().version))
    except NoJars as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
