"""A container that is run as a manifest for Kubernetes describes it, by an engine that shares its own network."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from tests.image.conftest import NAME, run
from tests.sealed.products import ROOT
from tests.support.waiting import wait_for

_READY_LIMIT = 180.0
_UNITS = {"Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True)
class Pod:
    """Settings of a deployment for its pods.

    Attributes:
        spec: the specification of the pod.
        files: the folder of the files in the Secret.
        variables: environment variables in place of the manifest's, whose addresses are examples; None removes one.
    """

    spec: Mapping[str, Any]
    files: Path
    variables: Mapping[str, str | None]

    @classmethod
    def of(cls, name: str, files: Path, variables: Mapping[str, str | None]) -> Self:
        """Return the pods of `deploy/kubernetes/<name>.yaml`."""
        objects = yaml.safe_load_all((ROOT / f"deploy/kubernetes/{name}.yaml").read_text())
        [deployment] = [each for each in objects if each["kind"] == "Deployment"]
        return cls(deployment["spec"]["template"]["spec"], files, variables)

    @property
    def container(self) -> Mapping[str, Any]:
        """The specification of the one container."""
        [container] = self.spec["containers"]
        return container

    @property
    def flags(self) -> list[str]:
        """Flags of `docker run` for the same restrictions, limits, volumes and variables."""
        return ["--network=host", *self._restrictions(), *self._limits(), *self._volumes(), *self._environment()]

    @property
    def end_limit(self) -> int:
        """Seconds until a pod that was asked to end is killed."""
        return int(self.spec["terminationGracePeriodSeconds"])

    def run(self, *arguments: str, entrypoint: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in a container of its own, to its end.

        Args:
            arguments: of the program.
            entrypoint: another program than the image's.
        """
        program = ["--entrypoint", entrypoint] if entrypoint else []
        return run(["docker", "run", "--rm", *self.flags, *program, NAME, *arguments])

    def _restrictions(self) -> list[str]:
        of_pod, of_container = self.spec["securityContext"], self.container["securityContext"]
        assert of_pod["runAsNonRoot"]
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}, "the engine's default profile"
        assert not of_container["allowPrivilegeEscalation"]
        assert of_container["readOnlyRootFilesystem"]
        capabilities = [f"--cap-drop={name}" for name in of_container["capabilities"]["drop"]]
        user = [f"--user={of_pod['runAsUser']}", f"--group-add={of_pod['fsGroup']}"]
        return [*user, *capabilities, "--security-opt=no-new-privileges", "--read-only"]

    def _limits(self) -> list[str]:
        limits = self.container["resources"]["limits"]
        memory = _bytes(limits["memory"])
        # An engine refuses more than the machine has.
        cores = min(int(limits["cpu"]), os.cpu_count() or 1)
        return [f"--memory={memory}", f"--memory-swap={memory}", f"--cpus={cores}"]

    def _volumes(self) -> list[str]:
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        flags: list[str] = []
        for mount in self.container["volumeMounts"]:
            volume, path = volumes[mount["name"]], mount["mountPath"]
            if "emptyDir" in volume:
                size = _bytes(volume["emptyDir"]["sizeLimit"])
                flags.append(f"--tmpfs={path}:rw,exec,nosuid,nodev,mode=1777,size={size}")
            elif "configMap" in volume:
                assert volume["configMap"]["optional"], "there is none, and its folder is empty"
                flags.append(f"--tmpfs={path}:ro,size=4k")
            else:
                self._give_files(volume["secret"]["defaultMode"])
                flags.append(f"--volume={self.files}:{path}:ro")
        return flags

    def _give_files(self, mode: int) -> None:
        self.files.chmod(0o755)
        for file in self.files.iterdir():
            os.chown(file, 0, self.spec["securityContext"]["fsGroup"])
            file.chmod(mode)

    def _environment(self) -> list[str]:
        manifest = {variable["name"]: variable["value"] for variable in self.container["env"]}
        return [f"--env={name}={value}" for name, value in {**manifest, **self.variables}.items() if value is not None]


class PodContainer:
    """A container that runs as the manifest says until the context ends.

    Args:
        pod: describes it.
    """

    def __init__(self, pod: Pod) -> None:
        self._pod, self._id = pod, ""

    def __enter__(self) -> Self:
        done = run(["docker", "run", "--detach", *self._pod.flags, NAME, *self._pod.container["args"]])
        assert done.returncode == 0, done.stderr
        self._id = done.stdout.strip()
        return self

    def __exit__(self, *_: object) -> None:
        run(["docker", "rm", "--force", self._id])

    @property
    def log(self) -> str:
        """Its output so far."""
        done = run(["docker", "logs", self._id])
        return done.stdout + done.stderr

    def execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as a probe or `kubectl exec` does."""
        return run(["docker", "exec", self._id, *command])

    def wait_ready(self) -> None:
        """Wait until the probe of its readiness passes.

        Raises:
            AssertionError: it did not in time; the log is in the message.
        """
        probe = self._pod.container["readinessProbe"]["exec"]["command"]
        try:
            wait_for("the container is ready", lambda: self.execute(probe).returncode == 0, _READY_LIMIT)
        except AssertionError as error:
            raise AssertionError(self.log) from error

    def stop(self) -> int:
        """Ask it to end, as the kubelet does; return its exit code."""
        run(["docker", "stop", f"--time={self._pod.end_limit}", self._id])
        return int(run(["docker", "inspect", "--format", "{{.State.ExitCode}}", self._id]).stdout)


def _bytes(quantity: str) -> int:
    return int(quantity[:-2]) * _UNITS[quantity[-2:]]
