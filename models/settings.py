"""Settings of the worker's process. The connection to Temporal is not among them: it comes from Temporal's own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.lifecycle.names import TASK_QUEUE


class Settings(BaseSettings):
    """Read from the environment, prefix `PULSAR_MIGRATE_`.

    Attributes:
        task_queue: the Temporal task queue to serve.
        deployment_name: Temporal's worker versioning, with `build_id`: the deployment that this worker belongs to.
            Empty means that all workers of the queue run the same code.
        build_id: the version of the code that this worker runs. A migration stays on the build on which it began.
        spark_master: where bulk jobs run: `local[*]`, `spark://host:port`, `k8s://…` or `yarn`.
        spark_driver_memory: heap of the driver's JVM.
        spark_conf: further Spark settings, as JSON.
        zookeeper_auth: credentials for ZooKeeper, each `scheme:credential` (for example `digest:user:password`).
        zookeeper_auth_file: file with further ones, one in a line; read when the worker starts.
        store_timeout: longest wait for one answer of a store.
        metrics_address: where Prometheus metrics are served; empty turns them off.
        admin_timeout: longest wait for one answer of a broker's admin interface.
        admin_token: bearer token for the brokers' admin interface.
        admin_token_file: file that holds it instead; read again when it changes.
        admin_oauth2_key_file: file (JSON) with `client_id` and `client_secret`, as Pulsar's clients take it: tokens are
            got for them instead (OAuth2 client credentials).
        admin_oauth2_issuer_url: issuer of these tokens, whose metadata names the token endpoint.
        admin_oauth2_token_url: the token endpoint itself, instead of the issuer.
        admin_oauth2_audience: who the tokens are for.
        admin_oauth2_scope: what they are for.
        admin_oauth2_tls_ca: file with the certificates (PEM) that the endpoint's own is checked against; empty means
            the system's.
        admin_tls_ca: the same for brokers. Brokers that offer HTTPS are asked by HTTPS in any case.
        admin_tls_certificate: file with our own certificate (PEM), where brokers ask for one.
        admin_tls_key: file with its key (PEM); empty if the certificate's file has it.
        admin_tls_verify_hostname: whether a broker's certificate must name its host.
        bookie_tls_ca: file with the certificates (PEM) that bookies' own are checked against; empty means no TLS.
        bookie_tls_certificate: file with our own certificate (PEM), where bookies ask for one.
        bookie_tls_key: file with its key (PEM).
        bookie_tls_verify_hostname: whether a bookie's certificate must name its host.
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
    """

    model_config = SettingsConfigDict(
        env_prefix="PULSAR_MIGRATE_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    task_queue: str = TASK_QUEUE
    deployment_name: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]*)?$", max_length=200)
    build_id: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.+-]*)?$", max_length=200)
    spark_master: str = "local[*]"
    spark_driver_memory: str = "512m"
    spark_conf: dict[str, str] = Field(default_factory=dict)
    zookeeper_auth: tuple[SecretStr, ...] = ()
    zookeeper_auth_file: str = ""
    store_timeout: timedelta = timedelta(seconds=10)
    metrics_address: str = "127.0.0.1:9464"
    admin_timeout: timedelta = timedelta(seconds=5)
    admin_token: SecretStr = SecretStr("")
    admin_token_file: str = ""
    admin_oauth2_key_file: str = ""
    admin_oauth2_issuer_url: str = ""
    admin_oauth2_token_url: str = ""
    admin_oauth2_audience: str = ""
    admin_oauth2_scope: str = ""
    admin_oauth2_tls_ca: str = ""
    admin_tls_ca: str = ""
    admin_tls_certificate: str = ""
    admin_tls_key: str = ""
    admin_tls_verify_hostname: bool = True
    bookie_tls_ca: str = ""
    bookie_tls_certificate: str = ""
    bookie_tls_key: str = ""
    bookie_tls_verify_hostname: bool = True
    broker_stop_command: tuple[str, ...] = ()
    broker_start_command: tuple[str, ...] = ()
    broker_command_timeout: timedelta = timedelta(minutes=10)
    broker_webhook: str = ""
    broker_webhook_token: SecretStr = SecretStr("")
    broker_webhook_token_file: str = ""

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        given = [
            name
            for name in ("admin_token", "admin_token_file", "admin_oauth2_key_file")
            if _is_given(getattr(self, name))
        ]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are both set; give the brokers' credentials in one way")
        if self.admin_oauth2_key_file and bool(self.admin_oauth2_issuer_url) == bool(self.admin_oauth2_token_url):
            raise ValueError("admin_oauth2_key_file needs either admin_oauth2_issuer_url or admin_oauth2_token_url")
        if _is_given(self.broker_webhook_token) and self.broker_webhook_token_file:
            raise ValueError("broker_webhook_token and broker_webhook_token_file are both set; give one")
        if bool(self.deployment_name) != bool(self.build_id):
            raise ValueError("deployment_name and build_id belong together: set both, or none")
        if self.admin_tls_key and not self.admin_tls_certificate:
            raise ValueError("admin_tls_key needs admin_tls_certificate")
        return self

    @property
    def zookeeper_credentials(self) -> tuple[tuple[str, bytes], ...]:
        """Scheme and credential, as ZooKeeper's `addauth` takes them, those of the file included.

        Raises:
            ValueError: an entry has no scheme, or the file cannot be read.
        """
        entries = [entry.get_secret_value() for entry in self.zookeeper_auth]
        if self.zookeeper_auth_file:
            entries += _lines(Path(self.zookeeper_auth_file))
        pairs = [entry.partition(":") for entry in entries]
        if not all(colon for _, colon, _ in pairs):
            raise ValueError("zookeeper_auth: an entry has no scheme; write scheme:credential")
        return tuple((scheme, credential.encode()) for scheme, _, credential in pairs)


def _is_given(value: str | SecretStr) -> bool:
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise ValueError(f"zookeeper_auth_file: {path} cannot be read ({error.strerror})") from error
