"""Temporal's worker versioning: migrations stay on the build on which they began."""

from __future__ import annotations

from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig

from models.settings import Settings


def deployment_config(settings: Settings) -> WorkerDeploymentConfig | None:
    """What a worker of the common queue says of its version; None where versioning is off.

    The behaviour is said here and not at the workflows, which a worker without versions would then be refused.
    """
    if not settings.build_id:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(settings.deployment_name, settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def set_current_line(settings: Settings, namespace: str) -> str:
    """The `temporal` line with which new migrations begin on this build."""
    return (
        f"temporal worker deployment set-current-version --namespace {namespace} "
        f"--deployment-name {settings.deployment_name} --build-id {settings.build_id} --yes"
    )
