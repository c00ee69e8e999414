"""The JVM of a Spark driver, started without a fork of this process.

PySpark's own start has a `preexec_fn`, so the interpreter forks and runs Python code in the copy of a process that has
many threads. gRPC's fork handlers cannot cope while calls are in flight: the copy aborts, and calls of the
process itself hang (both seen). A worker that takes over from another one has such calls while its JVM starts.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from models.child_environment import child_environment
from spark.environment import patched_environ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf

START_SECONDS = 120.0
"""Longest start of a JVM until it reports its port; 2 s are usual."""

_CHECK_SECONDS = 0.05
# A program that is started while SIGINT is ignored keeps ignoring it: the worker alone handles Ctrl-C.
_IGNORE_SIGINT = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]
_HEAD = struct.calcsize(">ii")
# Of Spark itself, and of the clusters that it runs on.
_PREFIXES = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")
_ASCII = 128
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def start_gateway(conf: SparkConf, variables: Mapping[str, str], further: Iterable[str] = ()) -> JavaGateway:
    """Start the JVM with `spark-submit` and connect to it; its process is the gateway's `proc`.

    The JVM ends when this process does.

    Args:
        conf: Spark's settings.
        variables: environment variables of the JVM.
        further: names of variables of this process that it inherits, next to the usual ones and those of Spark.

    Raises:
        PySparkRuntimeError: the JVM ended, or did not report its port within `START_SECONDS`.
    """
    from pyspark import java_gateway

    launch = cast("Callable[[], Any]", java_gateway.launch_gateway)  # pyright: ignore[reportUnknownMemberType]
    with tempfile.TemporaryDirectory(prefix="pulsar-migrate-") as folder:
        connection_file = Path(folder) / "gateway"
        own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file)}
        environment = child_environment({**variables, **own}, further=further, prefixes=_PREFIXES)
        # The JVM ends when its standard input does.
        command = _command(_written(conf, Path(folder) / "settings"))
        process = subprocess.Popen([*_IGNORE_SIGINT, *command], stdin=subprocess.PIPE, env=environment)
        port, secret = _read_connection(process, connection_file)
    with patched_environ(java_gateway, {_PORT: str(port), _SECRET: secret}):
        gateway = launch()
    gateway.proc = process
    return gateway


def _written(conf: SparkConf, file: Path) -> Path:
    """Write the settings into a file (Java's format for properties) that only this user can read."""
    lines = (f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.getAll())
    file.touch(0o600, exist_ok=False)
    file.write_text("".join(lines))
    return file


def _escaped(text: str) -> str:
    # The code units of UTF-16 that are not plain letters or digits: the same in each encoding, and never syntax.
    units = struct.iter_unpack(">H", text.encode("utf-16-be"))
    return "".join(chr(unit) if chr(unit).isalnum() and unit < _ASCII else f"\\u{unit:04x}" for (unit,) in units)


def _command(settings: Path) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home  # pyright: ignore[reportPrivateUsage] - there is no other

    # Other processes can read a command line.
    options = ["--properties-file", str(settings), "--load-spark-defaults"]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *options, *arguments]


def _read_connection(process: subprocess.Popen[bytes], connection_file: Path) -> tuple[int, str]:
    """Return port and secret as soon as the JVM has written them; kill a JVM that does not."""
    from pyspark.errors import PySparkRuntimeError

    limit = time.monotonic() + START_SECONDS
    # The JVM renames the complete file to this name.
    while not connection_file.exists():
        if process.poll() is not None or time.monotonic() > limit:
            process.kill()
            process.wait()
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(_CHECK_SECONDS)
    # Big-endian: the port, the secret's length in bytes, the secret.
    port, length = struct.unpack_from(">ii", content := connection_file.read_bytes())
    return port, content[_HEAD : _HEAD + length].decode()
