"""Settings of the worker's process. The connection to Temporal is not among them: it comes from Temporal's own."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.lifecycle.names import TASK_QUEUE


class Settings(BaseSettings):
    """Read from the environment, prefix `PULSAR_MIGRATE_`.

    Attributes:
        task_queue: the Temporal task queue to serve.
        spark_master: where bulk jobs run: `local[*]`, `spark://host:port`, `k8s://…` or `yarn`.
        spark_driver_memory: heap of the driver's JVM.
        spark_conf: further Spark settings, as JSON.
        zookeeper_auth: credentials for ZooKeeper, each `scheme:credential` (for example `digest:user:password`).
        store_timeout: longest wait for one answer of a store.
        metrics_address: where Prometheus metrics are served; empty turns them off.
        admin_timeout: longest wait for one answer of a broker's admin interface.
        admin_token: bearer token for the brokers' admin interface.
        bookie_tls_ca: file with the certificates (PEM) that bookies' own are checked against; empty means no TLS.
        bookie_tls_certificate: file with our own certificate (PEM), where bookies ask for one.
        bookie_tls_key: file with its key (PEM).
        bookie_tls_verify_hostname: whether a bookie's certificate must name its host.
        broker_stop_command: program and arguments that stop all brokers of a cluster; run for a switch of bookie
            clusters with `"broker_control": "command"`, perhaps more than once. The environment names what is wanted:
            `PULSAR_CLUSTER`, `BOOKKEEPER_METADATA_SERVICE_URI`.
        broker_start_command: likewise, starts brokers on the bookie cluster that the environment names.
        broker_command_timeout: longest run of either.
        broker_webhook: address that is asked instead with `"broker_control": "webhook"`: a POST with the JSON fields
            `action` (`stop` or `start`), `cluster` and `bookkeeperMetadataServiceUri`, answered with 2xx.
        broker_webhook_token: bearer token for it.
    """

    model_config = SettingsConfigDict(env_prefix="PULSAR_MIGRATE_", extra="ignore", frozen=True)

    task_queue: str = TASK_QUEUE
    spark_master: str = "local[*]"
    spark_driver_memory: str = "512m"
    spark_conf: dict[str, str] = Field(default_factory=dict)
    zookeeper_auth: tuple[str, ...] = ()
    store_timeout: timedelta = timedelta(seconds=10)
    metrics_address: str = "127.0.0.1:9464"
    admin_timeout: timedelta = timedelta(seconds=5)
    admin_token: str = ""
    bookie_tls_ca: str = ""
    bookie_tls_certificate: str = ""
    bookie_tls_key: str = ""
    bookie_tls_verify_hostname: bool = True
    broker_stop_command: tuple[str, ...] = ()
    broker_start_command: tuple[str, ...] = ()
    broker_command_timeout: timedelta = timedelta(minutes=10)
    broker_webhook: str = ""
    broker_webhook_token: str = ""

    @property
    def zookeeper_credentials(self) -> tuple[tuple[str, bytes], ...]:
        """Scheme and credential, as ZooKeeper's `addauth` takes them.

        Raises:
            ValueError: an entry has no scheme.
        """
        pairs = [entry.partition(":") for entry in self.zookeeper_auth]
        for scheme, colon, _ in pairs:
            if not colon:
                raise ValueError(f"zookeeper_auth: {scheme!r} has no scheme; write scheme:credential")
        return tuple((scheme, credential.encode()) for scheme, _, credential in pairs)
