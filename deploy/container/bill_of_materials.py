"""Print what is in the image as CycloneDX: Python distributions, Spark's jars and Debian's packages.

`make image` runs it in the image, so that it lists what is there and not what should be.
It uses the standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

_NAME = "pulsar-migrate"
_PACKAGE = "${Package}\t${Version}\t${Architecture}\t${source:Package}\n"
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)\.jar")


def bill_of_materials() -> dict[str, Any]:
    """Return the document; the same image has the same one."""
    components = [*_distributions(), *_jars(), *_debian_packages()]
    components.sort(key=lambda component: str(component["bom-ref"]))
    described = {"type": "container", "bom-ref": _NAME, "name": _NAME, "version": version(_NAME)}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": described},
        "components": components,
    }


def _component(kind: str, path: str, name: str, version: str, **more: object) -> dict[str, Any]:
    return {"type": "library", "bom-ref": f"{kind}:{path}@{version}", "name": name, "version": version, **more}


def _distributions() -> Iterator[dict[str, Any]]:
    for distribution in distributions(path=[sysconfig.get_path("purelib")]):
        name, number = distribution.metadata["Name"], distribution.version
        package = re.sub(r"[-_.]+", "-", name).lower()
        more: dict[str, object] = {"purl": f"pkg:pypi/{package}@{number}"}
        if licenses := list(_licenses(distribution)):
            more["licenses"] = licenses
        yield _component("pypi", package, name, number, **more)


def _licenses(distribution: Distribution) -> Iterator[dict[str, Any]]:
    metadata = distribution.metadata
    if expressions := metadata.get_all("License-Expression"):
        yield {"expression": expressions[0]}
        return
    names = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier", []) if text.startswith("License ::")]
    # Some distributions have the whole text in this field.
    first_lines = [text.partition("\n")[0] for text in metadata.get_all("License", [])]
    yield from ({"license": {"name": name}} for name in names or first_lines if name)


def _jars() -> Iterator[dict[str, Any]]:
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.jar")):
        match = _JAR.fullmatch(path.name)
        name, number = (match["name"], match["version"]) if match else (path.stem, "")
        more: dict[str, object] = {
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
        }
        if group := _group_of(path, name):
            more |= {"group": group, "purl": f"pkg:maven/{group}/{name}@{number}"}
        yield _component("jar", path.name, name, number, **more)


def _group_of(path: Path, name: str) -> str | None:
    """Return the Maven group of a jar, where it says so: other libraries may be packed into it."""
    description = re.compile(rf"META-INF/maven/([^/]+)/{re.escape(name)}/pom\.properties")
    with zipfile.ZipFile(path) as jar:
        groups = [match[1] for member in jar.namelist() if (match := description.fullmatch(member))]
    return groups[0] if groups else None


def _debian_packages() -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={_PACKAGE}"], capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        name, number, architecture, source = line.split("\t")
        purl = f"pkg:deb/debian/{name}@{number.replace('+', '%2B')}?arch={architecture}&upstream={source}"
        yield _component("deb", f"{name}:{architecture}", name, number, purl=purl)


if __name__ == "__main__":
    json.dump(bill_of_materials(), sys.stdout, indent=2)
    sys.stdout.write("\n")
