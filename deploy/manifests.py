"""Write the manifests of deploy/kubernetes from the Helm chart: `make manifests`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from pulsar_devstack.servers.cache import cache_folder

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/pulsar-migrate"
PLACEHOLDERS = ROOT / "deploy/helm/placeholders.yaml"
FOLDER = ROOT / "deploy/kubernetes"
NAMESPACE = "pulsar-migrate"
KUBERNETES = "1.34.0"
"""The release that a build of helm without a cluster takes; its own default is older than what the chart needs."""

_HEAD = """\
# Made by `make manifests` from the chart in deploy/helm, with the placeholders of deploy/helm/placeholders.yaml.
# Without Helm: replace the placeholders, such as image, addresses and namespaces, then
# kubectl --namespace {namespace} apply -f {name}.yaml
"""
_SOURCE = re.compile(r"^# Source: .*\n", re.MULTILINE)


class HelmMissing(Exception):
    """The program `helm` is not on this machine."""

    def __init__(self) -> None:
        super().__init__("helm is missing: `make helm` builds it with Go")


def helm_program() -> str:
    """Return the program `helm`, of the PATH or of the cache.

    Raises:
        HelmMissing: there is none.
    """
    built = cache_folder() / "bin/helm"
    program = shutil.which("helm") or (str(built) if built.exists() else "")
    if not program:
        raise HelmMissing
    return program


def template(*options: str, chart: Path = CHART, release: str = "pulsar-migrate") -> subprocess.CompletedProcess[str]:
    """Run `helm template`, which reads files only; errors as of `helm_program`.

    Args:
        options: further options, such as values.
        chart: the chart's folder.
        release: name of the release.
    """
    command = [helm_program(), "template", release, str(chart), "--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)


def manifests() -> dict[Path, str]:
    """Return the manifests by their files: one for each template that the placeholders enable.

    Raises:
        HelmMissing: there is no `helm`.
        CalledProcessError: the chart cannot be rendered.
    """
    done = template("--values", str(PLACEHOLDERS))
    done.check_returncode()
    texts: dict[str, str] = {}
    for document in re.split(r"^---\n", done.stdout, flags=re.MULTILINE)[1:]:
        [name] = re.findall(r"^# Source: \S+/templates/(\S+)\.yaml$", document, re.MULTILINE)
        texts[name] = (
            texts.get(name, _HEAD.format(name=name, namespace=NAMESPACE)) + "---\n" + _SOURCE.sub("", document)
        )
    return {FOLDER / f"{name}.yaml": text for name, text in texts.items()}


def main() -> None:
    """Write the files."""
    for file, text in manifests().items():
        file.write_text(text)


if __name__ == "__main__":
    main()
