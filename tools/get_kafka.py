"""Fetch Apache Kafka as plain jars by the machine's Maven, before anything needs them (`clusters/kafka/jars.py`).

python tools/get_kafka.py             # prints the folder that holds the jars, fetching them the first time
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tribunal.clusters.kafka.jars import VERSION, kafka_jars
from tribunal.clusters.maven_jars import NoJars


def main() -> int:
    """Fetch, and print the folder."""
    arguments = argparse.ArgumentParser(description="Fetch Apache Kafka as plain jars by Maven.")
    arguments.add_argument("--version", default=VERSION, help="a released version (default: %(default)s)")
    try:
        print(kafka_jars(arguments.parse_args().version))
    except NoJars as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
