"""A server that speaks S3 (moto's) on loopback, with a bucket and with credentials in the environment."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock
from urllib.request import Request, urlopen

import pyarrow.fs as arrow_fs
import pytest

BUCKET = "tribunal"
KEY, SECRET = "the-key-of-tests", "the-secret-of-tests"


@contextmanager
def s3_server() -> Iterator[str]:
    """Give the URL of a bucket that is empty; the environment names the server while it lives."""
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed: make setup")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    address = f"http://{host}:{port}"
    settings = {
        "AWS_ENDPOINT_URL": address,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    try:
        with mock.patch.dict(os.environ, settings):
            # What servers of this process before it have held is there still.
            urlopen(Request(f"{address}/moto-api/reset", method="POST")).close()
            system(address).create_dir(BUCKET)
            yield f"s3://{BUCKET}"
    finally:
        running.stop()


def system(address: str) -> arrow_fs.S3FileSystem:
    return arrow_fs.S3FileSystem(endpoint_override=address, region="us-east-1", allow_bucket_creation=True)


def objects() -> dict[str, bytes]:
    """Return all objects of the bucket by their paths."""
    storage = system(os.environ["AWS_ENDPOINT_URL"])
    files = [one for one in storage.get_file_info(arrow_fs.FileSelector(BUCKET, recursive=True)) if one.is_file]
    return {one.path: storage.open_input_stream(one.path).readall() for one in files}
