"""A migration whose bulk jobs run on a Spark cluster, with executors that know nothing of this project."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from models.lifecycle.status import Outcome
from models.metadata_store.input import MetadataStoreInput
from pulsar_devstack.servers import processes
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.operator import Operator
from tests.support.lifecycle.planted import SecretWatch
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.waiting import timeout_for, wait_until_equal

pytestmark = pytest.mark.exhaustive

CLUSTER = "bulk"
NODES = 4_000
WORKERS = 2
SECRET = "planted-91b7aa"
"""In a file of credentials, which this worker and all executors read."""
# Without `spark.authenticate.secret`, which both sides need, executors cannot register.
PROTECTION = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "planted-4e02d8",
    "spark.network.crypto.enabled": "true",
}
# One core and little memory for each executor, and nothing that leaves this machine.
CONF = {
    "spark.authenticate.secret": PROTECTION["spark.authenticate.secret"],
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_REGISTERING = re.compile(r"Registering worker(.+?) with ")


class SparkCluster(NamedTuple):
    """A standalone cluster.

    Attributes:
        url: `spark://host:port`.
        python: what executors run; it finds the installed libraries, but neither the checkout nor an editable install.
        work: one folder for each Spark worker, with a folder for each application and executor in it.
        workers: processes of these workers, which start the executors.
    """

    url: str
    python: Path
    work: list[Path]
    workers: list[int]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Generator[SparkCluster]:
    """A master and two workers from the installed package."""
    folder = tmp_path_factory.mktemp("spark")
    pyspark: Any = importlib.import_module("pyspark")
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    settings = folder / "settings"
    settings.write_text("".join(f"{name} {value}\n" for name, value in PROTECTION.items()))
    common = ["/usr/bin/env", "SPARK_LOCAL_IP=127.0.0.1", "SPARK_DAEMON_MEMORY=192m", program]
    master = [*common, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    file = ["--properties-file", str(settings)]
    commands = {"master": [*master, "--webui-port", "0", *file]}
    work = [folder / f"worker-{number}" for number in range(WORKERS)]
    for place in work:
        options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "768m", "--webui-port", "0"]
        commands[place.name] = [
            *common, "org.apache.spark.deploy.worker.Worker", *options, "--work-dir", str(place), *file, url
        ]  # fmt: skip
    children: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in commands.items():
            children.append(processes.spawn(command, cwd=folder, log=folder / f"{name}.log", detach=False))
        wait_until_equal("the registration of the workers", lambda: _registered(folder / "master.log"), WORKERS, 60)
        yield SparkCluster(url, _bare_python(folder), work, [child.pid for child in children[1:]])
    finally:
        for child in children:
            child.kill()
            child.wait(timeout_for(10))


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two stores, and a Temporal of its own, so that no other worker takes the migration."""
    made = make_stack(StackSpec(zookeepers=1, oxias=1, temporal=True, cluster=CLUSTER))
    with stores.kazoo(made.zk_url) as source:
        source.ensure_path("/managed-ledgers")
        asked = [source.create_async(f"/managed-ledgers/{n:05}", b"%d" % n * 50) for n in range(NODES)]
        for answer in asked:
            answer.get(timeout=30)
    return made


# Executors start, and import everything, while the migration waits for them.
def test_bulk_jobs_run_on_the_cluster(stack: Stack, spark: SparkCluster, tmp_path: Path) -> None:
    """Executors on both workers copy and compare with the code that was shipped to them, as they have no other.

    They prove that they are the master's, and find the credentials in a file: no program and no file of Spark has them.
    """
    for module in ("spark.metadata_store.tasks", "tests"):
        process = subprocess.run(
            [spark.python, "-c", f"import {module}"], cwd=tmp_path, capture_output=True, check=False
        )
        assert b"ModuleNotFoundError" in process.stderr
    input = MetadataStoreInput.model_validate(
        {
            "hold_before_cutover": False,
            "cluster": CLUSTER,
            "accept": stores.OTHER_ROOTS,
            "source": stack.zk_url,
            "target": stack.oxia_url,
            "validation_window": "PT0S",
            "allow_no_brokers": True,
        }
    )
    (tmp_path / "zookeeper").write_text(f"digest:user:{SECRET}\n")
    settings = {
        "PULSAR_MIGRATE_ZOOKEEPER_AUTH_FILE": str(tmp_path / "zookeeper"),
        "PULSAR_MIGRATE_HOSTS": "127.0.0.1",
        "PULSAR_MIGRATE_ALLOW_PLAIN": "true",
        "PULSAR_MIGRATE_SPARK_MASTER": spark.url,
        "PULSAR_MIGRATE_SPARK_CONF": json.dumps(CONF),
        "PYSPARK_PYTHON": str(spark.python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with (
        WorkerProcess(stack.temporal_address, tmp_path, cwd=tmp_path, **settings) as worker,
        Operator(stack.temporal_address) as operator,
        SecretWatch(lambda: [*worker.pids, *spark.workers], [SECRET], spark.work) as watch,
    ):
        report = operator.run(input, 300)
    assert not watch.found
    assert len([program for program in watch.programs if b"CoarseGrainedExecutorBackend" in program]) >= WORKERS
    assert report.outcome is Outcome.DONE
    compared = stores.assert_equal(stores.read_zookeeper(stack.zk_url), stores.read_oxia(stack.oxia_url))
    assert report.figures["copied_records"] == compared > NODES
    for place in spark.work:
        assert list(place.glob("app-*/*/pulsar_migrate_code.zip")), f"no code was shipped to {place.name}"


def _bare_python(folder: Path) -> Path:
    """Create a Python without `site`, and thus without the .pth file of an editable install."""
    path = folder / "python"
    libraries = sysconfig.get_path("purelib")
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    assert shutil.which(str(path))
    return path


def _registered(log: Path) -> int:
    # A worker that gets no answer in time asks again.
    return len({worker for line in processes.tail(log, 200) for worker in _REGISTERING.findall(line)})


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
