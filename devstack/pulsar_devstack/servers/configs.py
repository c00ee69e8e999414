"""Configuration files of small servers on one machine; the caller can override each line."""

from __future__ import annotations

from pathlib import Path

from pulsar_devstack.servers.spec import Settings

_PULSAR_DRIVER = "metadata-store:"
_LEDGER_STORES = ("metadataServiceUri", "bookkeeperMetadataServiceUri")
LOOPBACK = "127.0.0.1"
SESSION_TIMEOUT_MS = 10_000
"""Long enough for a busy machine, short enough for tests that wait for a killed server's session to end."""


def zookeeper(data: Path, client_port: int, quorum: dict[int, tuple[int, int]]) -> Settings:
    """Return the lines of `zoo.cfg`; `quorum` has peer and election port of each server, empty for a single server."""
    alone = {
        "tickTime": "1000",
        "dataDir": str(data),
        "clientPort": str(client_port),
        "clientPortAddress": LOOPBACK,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        "maxClientCnxns": "0",
        "minSessionTimeout": "2000",
        "maxSessionTimeout": "180000",
    }
    members = {f"server.{n}": f"{LOOPBACK}:{peer}:{election}" for n, (peer, election) in quorum.items()}
    return {**alone, "initLimit": "20", "syncLimit": "10", **members} if members else alone


def bookie(name: str, data: Path, port: int, http_port: int, metadata_uri: str) -> Settings:
    """Return the lines of `bookkeeper.conf`. Nothing is synced to disk, so data are lost only if the machine fails."""
    return {
        "bookiePort": str(port),
        "advertisedAddress": LOOPBACK,
        "listeningInterface": "lo",
        "allowLoopback": "true",
        "useHostNameAsBookieID": "false",
        "bookieId": name,
        "metadataServiceUri": metadata_uri,
        "zkTimeout": str(SESSION_TIMEOUT_MS),
        "journalDirectories": str(data / "journal"),
        "ledgerDirectories": str(data / "ledgers"),
        "indexDirectories": str(data / "index"),
        "journalSyncData": "false",
        "journalMaxSizeMB": "64",
        "journalPreAllocSizeMB": "4",
        "journalMaxBackups": "1",
        "journalWriteBufferSizeKB": "64",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": "16",
        "dbStorage_readAheadCacheMaxSizeMb": "16",
        "dbStorage_rocksDB_blockCacheSize": "8388608",
        "entryLogFilePreallocationEnabled": "false",
        "logSizeLimit": "67108864",
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.99",
        "diskUsageLwmThreshold": "0.99",
        "minUsableSizeForIndexFileCreation": "1",
        "minUsableSizeForEntryLogCreation": "1",
        "minUsableSizeForHighPriorityWrites": "1",
        "isForceGCAllowWhenNoSpace": "true",
        "autoRecoveryDaemonEnabled": "false",
        "serverNumIOThreads": "2",
        "numAddWorkerThreads": "1",
        "numReadWorkerThreads": "1",
        "numHighPriorityWorkerThreads": "1",
        "numJournalCallbackThreads": "1",
        "httpServerEnabled": "true",
        "httpServerPort": str(http_port),
        "httpServerHost": LOOPBACK,
        "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
        "enableStatistics": "false",
    }


def broker(cluster: str, port: int, http_port: int, metadata: Settings, replicas: int) -> Settings:
    """Return lines of `broker.conf`.

    Args:
        cluster: name of the Pulsar cluster.
        port: for clients.
        http_port: for the admin interface.
        metadata: lines that name the metadata stores, from `broker_metadata`.
        replicas: how many bookies get each message.
    """
    return {
        "clusterName": cluster,
        **metadata,
        "metadataStoreSessionTimeoutMillis": str(SESSION_TIMEOUT_MS),
        "brokerServicePort": str(port),
        "webServicePort": str(http_port),
        "bindAddress": LOOPBACK,
        "advertisedAddress": LOOPBACK,
        **broker_quorum(replicas),
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "loadBalancerEnabled": "false",
        "functionsWorkerEnabled": "false",
        "webSocketServiceEnabled": "false",
        "transactionCoordinatorEnabled": "false",
        "allowAutoTopicCreation": "true",
        "numIOThreads": "2",
        # Until it serves, each probe of a broker holds a thread. With eight, none was free to open a second web port.
        "numHttpServerThreads": "32",
        "numExecutorThreadPoolSize": "2",
        "numOrderedExecutorThreads": "1",
        "numCacheExecutorThreadPoolSize": "1",
        "bookkeeperNumberOfChannelsPerBookie": "1",
        "bookkeeperClientNumWorkerThreads": "1",
        "bookkeeperClientNumIoThreads": "1",
        "managedLedgerNumSchedulerThreads": "1",
        "managedLedgerCacheSizeMB": "16",
        # By default it looks at a cache of this size a hundred times a second.
        "managedLedgerCacheEvictionIntervalMs": "1000",
        "defaultNumberOfNamespaceBundles": "4",
        "brokerShutdownTimeoutMs": "3000",
        "brokerDeduplicationEnabled": "false",
        "statsUpdateInitialDelayInSecs": "60",
    }


def broker_quorum(replicas: int) -> Settings:
    """Return the lines of `broker.conf` for this many replicas, all of which must confirm a message."""
    return {
        "managedLedgerDefaultEnsembleSize": str(replicas),
        "managedLedgerDefaultWriteQuorum": str(replicas),
        "managedLedgerDefaultAckQuorum": str(replicas),
    }


def broker_metadata(url: str, ledgers_url: str | None = None) -> Settings:
    """Return the lines of `broker.conf` that name the metadata stores of the broker and of its BookKeeper client."""
    return {
        "metadataStoreUrl": url,
        "configurationMetadataStoreUrl": url,
        **broker_bookies(bookkeeper_uri(ledgers_url or url)),
    }


def broker_bookies(uri: str) -> Settings:
    """Return the line of `broker.conf` with the metadata service URI of the BookKeeper cluster."""
    return {"bookkeeperMetadataServiceUri": uri}


def bookie_metadata(url: str) -> Settings:
    """Return the line of `bookkeeper.conf` with the metadata store."""
    return {"metadataServiceUri": bookkeeper_uri(url)}


def without_batches(settings: Settings) -> Settings:
    """Return lines with BookKeeper clients that send each request to Pulsar's metadata store at once.

    To collect requests, each client wakes up two hundred times a second, which is half of what a bookie does in a test.
    Only releases with `STORE_PARAMETERS` can do without. An address that has parameters keeps them.
    """
    plain = {
        name: value
        for name, value in settings.items()
        if name in _LEDGER_STORES and value.startswith(_PULSAR_DRIVER) and "?" not in value
    }
    return {**settings, **{name: f"{value}?batchingEnabled=false" for name, value in plain.items()}}


def bookkeeper_uri(url: str) -> str:
    """Return the metadata service URI of the BookKeeper cluster in Pulsar's own metadata store."""
    # BookKeeper splits its settings at commas, so its URIs join the hosts by semicolons.
    # Without `/ledgers` at its end: Pulsar's driver adds it, and with a second one the bookie ends at its start (seen).
    return f"{_PULSAR_DRIVER}{url}".replace(",", ";")


def render(settings: Settings) -> str:
    """Return a properties file."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())
