"""Build a container image of replog by itself: a broker and controller that Kafka's clients use.

python tools/build_image.py            # replog:latest
python tools/build_image.py my/replog:1

Exit code 0: it is there; 3: no engine answers, or it does not build. docs/replog.md says how to configure it.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing

from tribunal.clusters.api import ClusterError
from tribunal.clusters.images.build import engine
from tribunal.clusters.images.standing import NAME, standing_image
from tribunal.results.verdict import EXIT_ERROR


def main(arguments: Sequence[str] | None = None) -> int:
    """Build it; return the exit code."""
    parser = argparse.ArgumentParser(description="Build a container image of replog by itself.")
    parser.add_argument("tag", nargs="?", default=NAME, help=f"its name; default: {NAME}")
    tag: str = parser.parse_args(arguments).tag
    print(f"building {tag}; the first time takes a minute or two", file=sys.stderr, flush=True)
    try:
        with closing(engine()) as client:
            standing_image(client, tag, lambda said: print(said, end="", file=sys.stderr, flush=True))
    except ClusterError as problem:
        print(f"build_image: {problem}", file=sys.stderr)
        return EXIT_ERROR
    print(tag)
    print(f"start it by: docker run --rm -p 9092:9092 {tag}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
