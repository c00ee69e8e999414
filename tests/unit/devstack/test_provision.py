"""The cache repairs itself, the locks hold, and what is missing on a machine is named with its cure."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from deploy.devstack import tools
from deploy.devstack.cache import Cache, Product, cache_folder, sha256_of
from deploy.devstack.errors import ChecksumMismatch, ProvisionFailed, ToolMissing
from deploy.devstack.jars import check_jars, read_lock
from deploy.devstack.temporal import temporal_product
from deploy.devstack.toolchain import DATA


class Counting:
    """Makes a product of two files and counts how often."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, folder: Path) -> None:
        """Fill the folder."""
        self.made += 1
        (folder / "lib").mkdir()
        (folder / "lib" / "a.jar").write_bytes(b"a" * 100)
        (folder / "b.jar").write_bytes(b"b" * 100)


@pytest.fixture
def lines() -> list[str]:
    """Progress that was shown."""
    return []


@pytest.fixture
def cache(tmp_path: Path, lines: list[str]) -> Cache:
    """An empty cache."""
    (tmp_path / "cache").mkdir()
    return Cache(tmp_path / "cache", lines.append)


def program(folder: Path, name: str, text: str) -> None:
    """A program that prints its version and nothing else."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)


def test_a_second_run_makes_nothing(cache: Cache, lines: list[str]) -> None:
    """A complete product is found again, without a line of progress."""
    make = Counting()
    product = Product("jars", (b"pom",), make)
    first = cache.ensure(product)
    shown = len(lines)
    assert (cache.ensure(product), make.made, len(lines)) == (first, 1, shown)


def test_other_inputs_are_another_product(cache: Cache) -> None:
    """The key depends on every input and on where one ends and the next begins."""
    folders = {cache.folder(Product("jars", parts, Counting())) for parts in [(b"ab", b"c"), (b"a", b"bc"), (b"abc",)]}
    assert len(folders) == 3


@pytest.mark.parametrize("damage", ["missing", "longer", "manifest"])
def test_damage_is_found_and_repaired(cache: Cache, lines: list[str], damage: str) -> None:
    """A missing file, a changed one and a broken manifest are seen at the next start, named, and made good."""
    make = Counting()
    product = Product("jars", (b"pom",), make)
    folder = cache.ensure(product)
    if damage == "missing":
        (folder / "lib" / "a.jar").unlink()
    elif damage == "longer":
        (folder / "b.jar").write_bytes(b"b" * 101)
    else:
        (folder / "manifest.json").write_text("{")
    cache.ensure(product)
    assert make.made == 2
    assert cache.fault(product, full=True) is None
    assert {"missing": "lib/a.jar is missing", "longer": "b.jar has changed", "manifest": "manifest"}[damage] in lines[
        2
    ]


def test_silent_corruption_is_found_by_the_full_check(cache: Cache) -> None:
    """A file of the same size and time but other bytes passes the quick check and fails the full one."""
    product = Product("jars", (b"pom",), Counting())
    jar = cache.ensure(product) / "b.jar"
    times = jar.stat()
    jar.write_bytes(b"c" * 100)
    os.utime(jar, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert cache.fault(product) is None
    assert cache.fault(product, full=True) == "b.jar is corrupt"


def test_a_failed_build_leaves_nothing(cache: Cache) -> None:
    """A build that fails half-way leaves neither a product nor a temporary folder."""

    def fail(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise ProvisionFailed("no network")

    with pytest.raises(ProvisionFailed):
        cache.ensure(Product("jars", (b"pom",), fail))
    assert list(cache.root.iterdir()) == []


def test_two_provisions_take_turns(cache: Cache, lines: list[str]) -> None:
    """The second one waits for the first, says so, and then finds the product made."""
    make = Counting()
    product = Product("jars", (b"pom",), make)

    def second() -> None:
        with cache.locked():
            cache.ensure(product)

    with cache.locked():
        other = threading.Thread(target=second)
        other.start()
        cache.ensure(product)
        while "waiting for another provision to finish" not in lines and other.is_alive():
            other.join(0.01)
    other.join(10)
    assert make.made == 1
    assert sorted(line.split()[0] for line in lines) == ["jars:", "jars:", "waiting"]


def test_jars_that_differ_from_the_lock_are_named(tmp_path: Path) -> None:
    """Missing, surplus and changed jars are each named, and equal ones are not."""
    for name in ("same", "changed", "surplus"):
        (tmp_path / f"{name}.jar").write_bytes(name.encode())
    lock = tmp_path / "jars.lock"
    lock.write_text(f"same.jar {sha256_of(tmp_path / 'same.jar')}\nchanged.jar {'0' * 64}\nmissing.jar {'1' * 64}\n")
    with pytest.raises(ChecksumMismatch) as failure:
        check_jars(tmp_path, lock)
    message = str(failure.value)
    assert all(
        part in message for part in ("missing.jar is missing", "surplus.jar is not in", "changed.jar has sha256")
    )
    assert "same.jar" not in message


@pytest.mark.parametrize(
    ("product", "jars"), [("pulsar", 200), ("pulsar_4", 200), ("pulsar_v5", 2), ("temporal_test_server", 40)]
)
def test_the_committed_locks_are_whole(product: str, jars: int) -> None:
    """Each locked jar is a plain file name with a sha256 sum."""
    lock = read_lock(DATA / product / "jars.lock")
    assert len(lock) >= jars
    assert all("/" not in name and name.endswith(".jar") and len(digest) == 64 for name, digest in lock.items())


def test_an_old_or_missing_java_is_named_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java 11 is refused by its path and version; none at all is refused too; both name the JDK to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ToolMissing, match=r"JDK 17 or newer.*no java on the PATH.*openjdk-17"):
        tools.find_java()
    program(tmp_path, "java", 'openjdk version "11.0.2"')
    with pytest.raises(ToolMissing, match=r"java is 11\.0.*openjdk-17"):
        tools.find_java()
    program(tmp_path, "java", 'openjdk version "21.0.2"')
    assert tools.find_java() == (tmp_path / "java", 21)


def test_a_missing_maven_is_named_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `mvn` the message says what it is for and how to get it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match=r"Maven is needed.*package manager"):
        tools.find_maven()


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("go version go1.26.8 linux/amd64", True),
        ("go version go1.27 x", False),
        ("go version go1.19.8 x", False),
        ("?", False),
    ],
)
def test_only_a_fitting_go_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, good: bool) -> None:
    """A Go of a release that cannot build the servers is passed over, as is a program that names no version."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.find_go() is None
    program(tmp_path, "go", text)
    assert (tools.find_go() is not None) is good


@pytest.mark.parametrize(("version", "good"), [("0.16.0", True), ("1.0", True), ("0.14.0", False)])
def test_an_oxia_that_drops_versions_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, good: bool
) -> None:
    """An `oxia` on the PATH older than 0.16 would ignore the versions that a migration writes."""
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "oxia", f"oxia version {version}")
    assert (tools.find_oxia() is not None) is good


def test_temporal_is_built_where_pypi_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Cache, lines: list[str]
) -> None:
    """Without a wheel for this platform the same version is built from Go modules, and a line says so."""
    # A `go` of a fitting release, whose build writes a file.
    build = 'case $1 in build) while [ "$1" != -o ]; do shift; done; echo made > $2;; *) echo go1.26.1;; esac'
    (tmp_path / "go").write_text(f"#!/bin/sh\n{build}\n")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = cache.ensure(temporal_product(DATA / "temporal_cli", cache, tmp_path / "logs"))
    assert (folder / "temporal").read_text() == "made\n"
    assert any("it is built" in line for line in lines)


def test_a_failed_tool_shows_its_last_words(tmp_path: Path) -> None:
    """The error of a failed command holds its exit code and the end of its output."""
    with pytest.raises(ProvisionFailed, match=r"(?s)ended with 3.*no such artifact"):
        tools.run_tool(["sh", "-c", "echo no such artifact; exit 3"], cwd=tmp_path, log=tmp_path / "log")


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The project's own variable wins over the user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("PULSAR_MIGRATE_CACHE", raising=False)
    assert cache_folder() == Path("/x/pulsar-migrate")
    monkeypatch.setenv("PULSAR_MIGRATE_CACHE", "/own")
    assert cache_folder() == Path("/own")
