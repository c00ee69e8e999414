"""Check of what Spark outside one machine needs before credentials may be used there."""

from __future__ import annotations

import json

from models.credentials import SECRETS, is_given
from models.settings import Settings

_CRYPTO_OF_RPC, _TLS_OF_RPC, _SECRET = (
    "spark.network.crypto.enabled",
    "spark.ssl.rpc.enabled",
    "spark.authenticate.secret",
)
PROTECTION = {
    # A driver listens for executors in local mode, too.
    "spark.authenticate": "true",
    _CRYPTO_OF_RPC: "true",
    # Blocks that do not fit into memory go to disk, and tasks are among them.
    "spark.io.encryption.enabled": "true",
}
"""Settings of Spark that hold unless the worker's settings have others."""

_FILE = "_file"


def is_local(master: str) -> bool:
    """Return whether a master runs all tasks on this machine."""
    return master.startswith("local")


def check_protection(settings: Settings) -> None:
    """Check that executors on other machines are authenticated and encrypted, and read secrets from files.

    An executor that is not authenticated may be anyone's: it would get tasks, and return pickles to this process.

    Raises:
        ValueError: a setting is missing; the message has the cause and what to add.
    """
    master = settings.spark_master
    if is_local(master):
        return
    # mutant: shared/spark-without-authentication
    if missing := _missing(master, settings.spark_conf):
        raise ValueError(
            f"executors of {master} would not be authenticated and encrypted; "
            f"add to PULSAR_MIGRATE_SPARK_CONF: {json.dumps(missing)}"
        )
    for name in ("", *settings.credentials):
        credentials, prefix = settings.credentials_of(name), settings.destinations_of(name).setting
        for field in SECRETS:
            if not field.endswith(_FILE) and is_given(getattr(credentials, field)):
                variable = f"{prefix}{field.upper()}"
                raise ValueError(
                    f"{variable} is set, and tasks on {master} get names of files instead of secrets; "
                    f"set {variable}_FILE to a file that this process and all executors have at the same path"
                )


def _missing(master: str, conf: dict[str, str]) -> dict[str, str]:
    """Return the settings to add."""
    effective = {**PROTECTION, **conf}
    turned_off = {name for name, value in effective.items() if name in PROTECTION and value.lower() != "true"}
    if effective.get(_TLS_OF_RPC, "").lower() == "true":
        turned_off.discard(_CRYPTO_OF_RPC)
    missing = {name: PROTECTION[name] for name in sorted(turned_off)}
    # Kubernetes, YARN and local mode make one up for each application.
    if master.startswith("spark://") and not conf.get(_SECRET):
        missing[_SECRET] = "…"
    return missing
