"""Check of what Spark outside one machine needs before credentials may be used there."""

from __future__ import annotations

import json

from models.credentials import SECRETS, is_given
from models.settings import Settings

_ENCRYPTED_RPC = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
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
    wanted = {"spark.authenticate": "true"}
    if not any(_is_true(conf, name) for name in _ENCRYPTED_RPC):
        wanted[_ENCRYPTED_RPC[0]] = "true"
    # On by default, so that it is only missing where it was turned off.
    if conf.get("spark.io.encryption.enabled", "true").lower() != "true":
        wanted["spark.io.encryption.enabled"] = "true"
    missing = {name: value for name, value in wanted.items() if not _is_true(conf, name)}
    # Kubernetes and YARN make one up for each application.
    if master.startswith("spark://") and not conf.get("spark.authenticate.secret"):
        missing["spark.authenticate.secret"] = "…"
    return missing


def _is_true(conf: dict[str, str], name: str) -> bool:
    return conf.get(name, "").lower() == "true"
