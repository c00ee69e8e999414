"""Settings of the worker's process. The connection to Temporal is not among them: it comes from Temporal's own."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.child_environment import OtherVariable
from models.credentials import Credentials, CredentialsName, NamedCredentials, UnknownCredentials, is_given
from models.destinations import Destinations
from models.hooks import Hook, keys_of
from models.lifecycle.hook_events import HookName
from models.lifecycle.names import TASK_QUEUE
from models.redaction import url_secrets

# As Spark's own `spark.redaction.regex`.
_SECRET_SPARK_SETTING = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


class Settings(BaseSettings, Credentials):  # pyright: ignore[reportIncompatibleVariableOverride] - one for both is below
    """Read from the environment, prefix `PULSAR_MIGRATE_`. The fields of `Credentials` are the common ones.

    Attributes:
        task_queue: the Temporal task queue to serve.
        deployment_name: Temporal's worker versioning, with `build_id`: the deployment that this worker belongs to.
            Empty means that all workers of the queue run the same code.
        build_id: the version of the code that this worker runs. A migration stays on the build on which it began.
        spark_master: where bulk jobs run: `local[*]`, `spark://host:port`, `k8s://…` or `yarn`.
        spark_driver_memory: heap of the driver's JVM.
        spark_conf: further Spark settings, as JSON.
        store_timeout: longest wait for one answer of a store.
        metrics_address: where Prometheus metrics are served; empty turns them off.
        admin_timeout: longest wait for one answer of a broker's admin interface.
        credentials: further sets of credentials, by the names that inputs give; each has all fields of the common ones.
        broker_stop_command: program and arguments that stop all brokers of a cluster; run for a switch of bookie
            clusters with `"broker_control": "command"`, perhaps more than once. The environment names what is wanted:
            `PULSAR_CLUSTER`, `BOOKKEEPER_METADATA_SERVICE_URI`, and who orders it, with a number that grows,
            `SWITCH_EPOCH`.
        broker_start_command: likewise, starts brokers on the bookie cluster that the environment names.
        broker_command_timeout: longest run of either.
        broker_webhook: address that is asked instead with `"broker_control": "webhook"`: a POST with the JSON fields
            `action` (`stop` or `start`), `cluster`, `bookkeeperMetadataServiceUri`, `workflowId`, `runId`, `direction`
            and `epoch`, answered with 2xx.
        broker_webhook_token: bearer token for it.
        broker_webhook_token_file: file that holds it instead; read again when it changes.
        broker_webhook_secret: signs these requests as those of hooks are signed; empty for no signature.
        broker_webhook_secret_file: file that holds it instead, and during a change the previous one in a further line.
        hooks: HTTP endpoints and commands that get the events of migrations, by the names that inputs give.
        command_environment: names of environment variables that these commands and Spark inherit, as JSON, next to the
            usual ones (`PATH`, `HOME` and others; see docs/security.md). They never get settings of ours.
        stop_file: file that stops all fleets while it exists: no namespace or topic of a wave starts. Its first line is
            the reason. Give all workers the same file.
        enable_scalable_topic_migration: whether topics may become scalable (PIP-475), which cannot be taken back.
    """

    model_config = SettingsConfigDict(
        env_prefix="PULSAR_MIGRATE_",
        env_nested_delimiter="__",
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    task_queue: str = Field(default=TASK_QUEUE, min_length=1)
    deployment_name: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]*)?$", max_length=200)
    build_id: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.+-]*)?$", max_length=200)
    spark_master: str = "local[*]"
    spark_driver_memory: str = "512m"
    spark_conf: dict[str, str] = Field(default_factory=dict, repr=False)
    store_timeout: timedelta = timedelta(seconds=10)
    metrics_address: str = "127.0.0.1:9464"
    admin_timeout: timedelta = timedelta(seconds=5)
    credentials: dict[CredentialsName, NamedCredentials] = Field(default_factory=dict)
    broker_stop_command: tuple[str, ...] = Field(default=(), repr=False)
    broker_start_command: tuple[str, ...] = Field(default=(), repr=False)
    broker_command_timeout: timedelta = timedelta(minutes=10)
    broker_webhook: str = Field(default="", repr=False)
    command_environment: tuple[OtherVariable, ...] = ()
    broker_webhook_token: SecretStr = SecretStr("")
    broker_webhook_token_file: str = ""
    broker_webhook_secret: SecretStr = SecretStr("")
    broker_webhook_secret_file: str = ""
    hooks: dict[HookName, Hook] = Field(default_factory=dict)
    stop_file: str = ""
    enable_scalable_topic_migration: bool = True

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        if is_given(self.broker_webhook_token) and self.broker_webhook_token_file:
            raise ValueError("broker_webhook_token and broker_webhook_token_file are both set; give one")
        if is_given(self.broker_webhook_secret) and self.broker_webhook_secret_file:
            raise ValueError("broker_webhook_secret and broker_webhook_secret_file are both set; give one")
        if is_given(self.broker_webhook_secret):
            keys_of(self.broker_webhook_secret.get_secret_value())
        if bool(self.deployment_name) != bool(self.build_id):
            raise ValueError("deployment_name and build_id belong together: set both, or none")
        return self

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that are given as values: those of credentials, of hooks, of the webhook and of Spark."""
        named = (secret for credentials in self.credentials.values() for secret in credentials.secrets)
        spark = (value for name, value in self.spark_conf.items() if _is_secret(name))
        hooks = (secret for hook in self.hooks.values() for secret in hook.secrets)
        return (*super().secrets, *named, *hooks, *spark, *url_secrets(self.broker_webhook))

    def credentials_of(self, name: str) -> Credentials:
        """Return the credentials of a name; those of the settings themselves, the common ones, for the empty one.

        Raises:
            UnknownCredentials: there are none of this name. The common ones never replace them.
        """
        if not name:
            return self
        # mutant: shared/common-credentials-instead-of-named-ones
        if (named := self.credentials.get(name)) is None:
            available = ", ".join(sorted(self.credentials)) or "none with a name"
            raise UnknownCredentials(
                f"the worker's settings have no credentials called {name!r}; they have {available}"
            )
        return named

    def check_hosts(self) -> None:
        """Check that each set with a secret lists its hosts.

        Raises:
            ValueError: one does not; the message names the variable to set.
        """
        for name in ("", *self.credentials):
            destinations = self.destinations_of(name)
            if self.credentials_of(name).has_secret and not destinations.hosts:
                raise ValueError(
                    f"{destinations.setting}HOSTS is not set, so the credentials next to it may go to no server"
                )

    def destinations_of(self, name: str) -> Destinations:
        """Return the hosts that may receive the credentials of a name; errors as of `credentials_of`."""
        credentials, prefix = self.credentials_of(name), "PULSAR_MIGRATE_"
        setting = f"{prefix}CREDENTIALS__{name.upper()}__" if name else prefix
        return Destinations(credentials.listed_hosts, credentials.allow_plain, setting)


def _is_secret(name: str) -> bool:
    """Return whether a setting of Spark has a secret, and not the name of a file that holds one."""
    return _SECRET_SPARK_SETTING.search(name) is not None and not name.lower().endswith("file")
