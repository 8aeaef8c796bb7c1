"""Ends with 0 where a node of etcd leads, as its figures say."""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=2) as page:  # noqa: S310 - of our own node
    sys.exit(b"\netcd_server_is_leader 1\n" not in page.read())
