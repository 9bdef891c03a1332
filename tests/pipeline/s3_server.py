"""An S3 server on 127.0.0.1 in a separate process, for tests: objects in memory, any credentials."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from ntmp_cli import storage

BUCKET = "bucket"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment that clients of the server need; it has one bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(server, port)
            bucket = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
            urllib.request.urlopen(bucket, timeout=30).close()
            storage._file_system.cache_clear()  # of a server of other tests, which has ended
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        finally:
            server.terminate()


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the S3 server did not start: is moto installed with flask and flask-cors?")
