"""The installed wheel works next to foreign packages that have the names of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from deploy import release
from deploy.release import ReleaseError, build_release, write_sums
from pulsar_devstack.servers.stack import Stack, StackSpec
from tests.support.lifecycle.worker import WorkerProcess
from tests.support.metadata_store import stores
from tests.support.stacks import MakeStack
from tests.support.wheel import ROOT, Environment, build_wheel, runtime_environment

CLUSTER = "wheel"
NODES = 500
OURS = (
    "models",
    "clients",
    "spark",
    "activities",
    "workflows",
    "temporal",
    "process",
    "worker",
    "gateway",
    "views",
    "page",
    "cli",
)
FOREIGN = 'raise ImportError(f"{__name__} is a foreign package: {__file__}")\n'
_LIMIT = 120


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, set[str]]:
    """An environment of the runtime lock and both wheels, and what their installation added to site-packages."""
    environment = runtime_environment(tmp_path_factory.mktemp("environment"))
    before = {path.name for path in environment.packages.iterdir()}
    wheels = [build_wheel(tmp_path_factory.mktemp("wheel"), project) for project in (ROOT, ROOT / "scalable_client")]
    environment.pip("install", "--no-deps", "--no-index", *map(str, wheels))
    return environment, {path.name for path in environment.packages.iterdir()} - before


@pytest.fixture(scope="module")
def installed(added: tuple[Environment, set[str]]) -> Environment:
    """The same, with packages in site-packages that have our names and cannot be imported."""
    environment, _ = added
    for name in OURS:
        _foreign_package(environment.packages / name)
    return environment


@pytest.fixture(scope="module")
def stack(make_stack: MakeStack) -> Stack:
    """Two stores, one of them filled, and a separate Temporal."""
    made = make_stack(StackSpec(zookeepers=1, oxias=1, temporal=True, cluster=CLUSTER))
    with stores.kazoo(made.zk_url) as source:
        source.ensure_path("/managed-ledgers")
        for answer in [source.create_async(f"/managed-ledgers/{n:04}", b"%d" % n) for n in range(NODES)]:
            answer.get(timeout=30)
    return made


def test_added_folders(added: tuple[Environment, set[str]]) -> None:
    """Both wheels add one folder a package and their metadata, and the runtime lock has all that they need."""
    environment, names = added
    folders = {name for name in names if not name.endswith(".dist-info")}
    assert folders == {"pulsar_migrate", "pulsar_scalable", "pulsar_wire"}
    assert len(names) == len(folders) + 2
    environment.pip("check")


def test_the_wheel_has_the_product_only(tmp_path: Path) -> None:
    """Neither the dev stack, demos and tests nor the build's own code gets into production."""
    wheel = build_wheel(tmp_path / "wheel")
    names = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    tops = {name.parts[0] for name in names}
    assert tops == {"pulsar_migrate", next(top for top in tops if top.endswith(".dist-info"))}
    assert {name.parts[1] for name in names if name.parts[0] == "pulsar_migrate" and len(name.parts) > 2} == set(OURS)
    suffixes = {name.suffix for name in names if name.parts[0] == "pulsar_migrate"}
    assert suffixes == {".py", ".pyi", ".toml", ".proto", ".html", ".css", ".js"}


@pytest.mark.parametrize("project", [".", "scalable_client"])
def test_the_image_copies_all_that_its_wheels_need(tmp_path: Path, project: str) -> None:
    """The wheel that is built from what the Dockerfile copies has the same files as the checkout's."""
    copied = tmp_path / "copied"
    for instruction in (ROOT / "deploy/container/Dockerfile").read_text().splitlines():
        # Not what the last stage takes from the stage that builds.
        if instruction.startswith("COPY ") and "--from=" not in instruction:
            for source in instruction.split()[1:-1]:
                _copy(ROOT / source, copied / source)
    contents = [
        sorted(zipfile.ZipFile(build_wheel(tmp_path / name, folder / project)).namelist())
        for name, folder in (("image", copied), ("checkout", ROOT))
    ]
    assert contents[0] == contents[1]


def test_a_release_is_built_twice(tmp_path: Path) -> None:
    """Two builds of a commit in different folders have the same bytes, and the file of sums names each."""
    folder = tmp_path / "dist"
    built = build_release("HEAD", folder, tmp_path)
    assert Counter(path.suffix for path in built) == {".whl": 2, ".gz": 2}
    sums = write_sums(folder)
    checked = subprocess.run(
        ["sha256sum", "--check", sums.name], cwd=folder, capture_output=True, text=True, check=True
    )
    assert len(checked.stdout.splitlines()) == len(built)


def test_a_release_that_depends_on_its_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the file, and nothing is left that could be published."""

    def build(project: Path, folder: Path, epoch: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / f"of-{epoch}.whl").write_text(str(project))

    monkeypatch.setattr(release, "_build", build)
    with pytest.raises(ReleaseError, match=r"differ in of-\d+\.whl"):
        build_release("HEAD", tmp_path / "dist", tmp_path)
    assert not (tmp_path / "dist").exists()


def test_worker_and_spark_use_our_packages(installed: Environment, stack: Stack, tmp_path: Path) -> None:
    """Command line, worker and executors import our packages next to foreign ones, and migrate everything."""
    for name in OURS:
        _foreign_package(tmp_path / name)
    program = str(installed.programs / "pulsar-migrate")
    both = {"source": stack.zk_url, "target": stack.oxia_url}
    input = {
        "cluster": CLUSTER,
        **both,
        "validation_window": "PT0S",
        "allow_no_brokers": True,
        "hold_before_cutover": False,
    }
    with WorkerProcess(stack.temporal_address, tmp_path, cwd=tmp_path, program=[program]) as worker:
        command = [program, "start", "metadata-store", "--input", json.dumps(input), "--wait"]
        done = _run(command, tmp_path, TEMPORAL_ADDRESS=stack.temporal_address)
        assert done.returncode == 0, worker.story(done.stdout + done.stderr)
    assert stores.assert_equal(stores.read_zookeeper(stack.zk_url), stores.read_oxia(stack.oxia_url)) > NODES


def test_module_is_run_from_any_folder(installed: Environment, tmp_path: Path) -> None:
    """`python -m pulsar_migrate` runs our program also in a folder with packages of the same names."""
    for name in OURS:
        _foreign_package(tmp_path / name)
    done = _run([str(installed.python), "-m", "pulsar_migrate", "--help"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "worker" in done.stdout


def test_dev_stack_is_a_distribution_of_its_own(installed: Environment, stack: Stack, tmp_path: Path) -> None:
    """`pulsar-migrate dev` exists, down to the servers' own files, where the dev stack is installed, and only there."""
    command = [str(installed.programs / "pulsar-migrate"), "dev", "status", "--folder", str(stack.folder)]
    assert "No such command 'dev'" in _run(command, tmp_path).stderr
    wheels = tmp_path / "wheels"
    installed.pip("install", "--no-deps", "--no-index", str(build_wheel(wheels, ROOT / "devstack")))
    done = _run(command, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "zookeeper-1" in done.stdout


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, as a fresh checkout has it: without what was compiled."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*_pb2.py*", "__pycache__"))
    else:
        shutil.copy(source, target)


def _foreign_package(folder: Path) -> None:
    folder.mkdir()
    (folder / "__init__.py").write_text(FOREIGN)


def _run(command: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "PYTHON"))}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
