"""Servers for tests, on loopback."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def moto_server() -> Iterator[dict[str, str]]:
    """An imitation of S3 in a process of its own: what `s3fs.S3FileSystem` needs to find it.

    Its log goes to a file: it says a line for each request, and would wait for ever for the reader of a pipe.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with open(log, "w") as stream:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
            process = subprocess.Popen(command, stdout=stream, stderr=stream)
        try:
            end = time.monotonic() + 60
            while "Running on http" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
            address = log.read_text().partition("Running on ")[2].split()[0]
            yield {"endpoint_url": address, "key": "k", "secret": "s"}
        finally:
            process.kill()
            process.wait()
