"""The image is built from artefacts with the locked sums, in a network that has nothing else."""

from __future__ import annotations

import json
import os
import socket
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.image.conftest import NAME, BuiltImage, make_image, run
from tests.sealed.index import with_changed_byte
from tests.sealed.network import OUTSIDE, packets_to_outside
from tests.sealed.products import ROOT

_LARGEST = 900_000_000
_OURS = {"pulsar-migrate", "pulsar-scalable"}
_SPECIAL = "var/lib/dpkg/status"


@pytest.fixture(scope="module")
def bill(image: BuiltImage) -> Counter[tuple[str, str, str]]:
    """Kind, name and version of each part that the image's bill of materials lists."""
    components = json.loads((image.checkout / "dist/image.cdx.json").read_text())["components"]
    return Counter(
        (kind, str(canonicalize_name(component["name"])) if kind == "pypi" else component["name"], component["version"])
        for component in components
        for kind in [component["bom-ref"].partition(":")[0]]
    )


@pytest.fixture(scope="module")
def distributions_bill(image: BuiltImage) -> Path:
    """Return the bill that `make sbom` makes, in the sealed network too."""
    done = run(["make", "sbom"], image.checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    return image.checkout / "dist/sbom.cdx.json"


@pytest.fixture(scope="module")
def listing(image: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """Names of the files in the image, and the status file of its Debian packages."""
    exported = tmp_path_factory.mktemp("image") / "files.tar"
    container = run(["docker", "create", NAME]).stdout.strip()
    try:
        assert run(["docker", "export", "--output", str(exported), container]).returncode == 0
    finally:
        run(["docker", "rm", container])
    with tarfile.open(exported) as files:
        status = files.extractfile(_SPECIAL)
        assert status is not None
        return files.getnames(), status.read().decode()


def test_the_network_leads_nowhere(base: str) -> None:
    """A connection to another address than loopback finds no answer, and is counted."""
    before = packets_to_outside()
    with socket.socket() as outside:
        outside.settimeout(0.5)
        with pytest.raises(OSError, match="timed out"):
            outside.connect((OUTSIDE, 443))
    assert packets_to_outside() > before


def test_the_image_is_small_and_names_its_base(image: BuiltImage) -> None:
    """The image has less than 900 MB, and a label with name and digest of its base."""
    [described] = json.loads(run(["docker", "inspect", NAME]).stdout)
    print(f"image: {described['Size'] / 1e6:.0f} MB, built in {image.seconds:.0f} s")
    assert described["Size"] < _LARGEST
    assert described["Config"]["Labels"]["org.opencontainers.image.base.name"] == image.base
    assert "@sha256:" in image.base


def test_a_base_without_a_digest_is_refused(checkout: Path, base: str) -> None:
    """`make image` builds on no base that is named by a tag only, and says so."""
    done = run(make_image(base.partition("@")[0] + ":latest"), checkout)
    assert done.returncode != 0
    assert "has no digest. cure: make image BASE=" in done.stderr


@pytest.mark.parametrize("project", ["hatchling", "annotated-doc"], ids=["build-tool", "dependency"])
def test_a_changed_byte_in_a_package_stops_the_build(checkout: Path, base: str, project: str) -> None:
    """A build whose index serves a package with one other byte fails, and names the package and both sums."""
    changed = os.environ["PIP_INDEX_URL"].replace("/simple", f"/changed/{project}/simple")
    done = run(make_image(base), checkout, PIP_INDEX_URL=changed)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in output
    [line] = {line for line in output.splitlines() if f"{project}==" in line and "from http" in line}
    assert changed.removesuffix("/simple") in line


def test_a_changed_byte_in_the_base_stops_the_build(tmp_path: Path, checkout: Path, base: str) -> None:
    """A registry that serves another layer than the base's digest says gets no image built on it."""
    (tmp_path / "content").write_bytes(os.urandom(1000))
    name = f"{os.environ['SEALED_REGISTRY']}/changed"
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY content /content\n")
    # Without BuildKit, whose cache could have the right layer.
    for command in (["build", "--tag", name, str(tmp_path)], ["push", name]):
        assert run(["docker", *command], DOCKER_BUILDKIT="0").returncode == 0
    digest = run(["docker", "inspect", "--format", "{{index .RepoDigests 0}}", name]).stdout.strip()
    assert run(["docker", "rmi", "--force", name, digest]).returncode == 0
    registry = Path(os.environ["DOCKER_HOST"].removeprefix("unix://")).parent / "registry"
    [layers] = registry.glob("**/repositories/changed/_layers/sha256")
    for layer in layers.iterdir():
        [blob] = registry.glob(f"**/blobs/sha256/*/{layer.name}/data")
        blob.write_bytes(with_changed_byte(blob.read_bytes()))
    done = run(make_image(digest), checkout)
    assert done.returncode != 0
    assert "unexpected commit digest" in done.stderr


def test_the_bill_lists_the_packages_of_the_lock(bill: Counter[tuple[str, str, str]]) -> None:
    """The image's Python packages are those of the runtime lock, and ours: no other one, and no other version."""
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line.rstrip(" \\")) for line in lock if line[:1].isalnum()]
    pinned = {
        (str(canonicalize_name(pin.name)), next(iter(pin.specifier)).version)
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }
    listed = {(name, version) for kind, name, version in bill if kind == "pypi"}
    assert {(name, version) for name, version in listed if name not in _OURS} == pinned
    assert {name for name, _ in listed} >= _OURS


def test_the_bill_lists_all_that_is_in_the_image(
    bill: Counter[tuple[str, str, str]], listing: tuple[list[str], str]
) -> None:
    """Each Python distribution, jar and Debian package whose files are in the image is in its bill, and no other."""
    names, status = listing
    metadata = [Path(name).parent.name for name in names if name.endswith(".dist-info/METADATA")]
    distributions = [folder.removesuffix(".dist-info").rsplit("-", 1) for folder in metadata]
    # The JDK has jars of its own: its Debian package is listed.
    jars = [Path(name).name for name in names if name.endswith(".jar") and "/site-packages/" in name]
    packages = [dict(_fields(block)) for block in status.strip().split("\n\n")]
    assert bill == Counter(
        [
            *(("pypi", str(canonicalize_name(name)), version) for name, version in distributions),
            *(("jar", *_split(name)) for name in jars),
            *(("deb", package["Package"], package["Version"]) for package in packages),
        ]
    )
    assert len(jars) > 100
    assert not any(kind == "pypi" and name in ("pip", "setuptools") for kind, name, _ in bill)


def test_the_bills_are_valid(image: BuiltImage, distributions_bill: Path) -> None:
    """CycloneDX's own validator finds no error in the bill of the image and in that of the distributions."""
    program = (
        "import sys; from pathlib import Path; from cyclonedx.schema import SchemaVersion;"
        "from cyclonedx.validation.json import JsonStrictValidator;"
        "print([JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(path).read_text()) for path in sys.argv[1:]])"
    )
    bills = [str(path) for path in (image.checkout / "dist/image.cdx.json", distributions_bill)]
    done = run([str(image.checkout / ".venv-audit/bin/python"), "-c", program, *bills])
    assert done.stdout == "[None, None]\n", done.stdout + done.stderr


def test_both_bills_agree(distributions_bill: Path, bill: Counter[tuple[str, str, str]]) -> None:
    """`make sbom` lists the Python packages that are in the image, and no others."""
    components = json.loads(distributions_bill.read_text())["components"]
    listed = {(str(canonicalize_name(component["name"])), component["version"]) for component in components}
    assert listed == {(name, version) for kind, name, version in bill if kind == "pypi" and name not in _OURS}


def _fields(block: str) -> list[tuple[str, str]]:
    lines = [line for line in block.splitlines() if not line.startswith(" ")]
    return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]


def _split(jar: str) -> tuple[str, str]:
    """Return name and version of a jar: the version begins at the first dash before a digit."""
    stem = jar.removesuffix(".jar")
    dash = next((i for i in range(len(stem) - 1) if stem[i] == "-" and stem[i + 1].isdigit()), len(stem))
    return stem[:dash], stem[dash + 1 :]
