"""The settings of a gateway of scalable topics for the cluster of a stack."""

from __future__ import annotations

import json

from pulsar_devstack.stack import Stack

_PREFIX = "PULSAR_MIGRATE_GATEWAY_"


def gateway_settings(stack: Stack, **more: str) -> dict[str, str]:
    """Variables of its environment.

    Args:
        stack: the cluster.
        more: further settings, or others, by their names: `tokens_file` and so on.
    """
    given = {
        "cluster": stack.state.spec.cluster,
        "metadata_url": stack.metadata_url,
        "admin_urls": json.dumps(stack.admin_urls),
        **more,
    }
    return {f"{_PREFIX}{name.upper()}": value for name, value in given.items()}
