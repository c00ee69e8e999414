"""Checks of a worker's own settings: Java, Spark, metrics, files, commands, the webhook and hooks."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from activities.lifecycle.stop_file import stop_reason
from cli.doctor.certificates import SOON, check_authorities, check_identity
from cli.doctor.findings import Check, Finding, warning
from clients.errors import NoCredentials, StoreError, StoreUnreachable
from clients.oxia.access import OxiaAccess
from clients.pulsar.admin.access import AdminAccess, token_auth
from clients.signature import SecretKeys
from clients.tls import Tls
from clients.zookeeper.access import ZooKeeperAccess
from gateway.access.grants import Tokens
from gateway.settings import PREFIX as GATEWAY_PREFIX
from models.child_environment import child_environment
from models.credentials import Credentials, is_given
from models.destinations import Destinations
from models.hooks import Hook
from models.lifecycle.units import Unit, format_value
from models.settings import Settings
from process.exit_codes import CommandFailed, ExitCode
from process.followed_file import FileError
from spark.protection import check_protection, is_local
from temporal.codec import PREFIX as PAYLOAD_PREFIX
from temporal.codec import PayloadSettings, keys_of

OLDEST_JAVA = 17
CONNECT_TIMEOUT = 5.0
"""Longest wait for a connection, in seconds."""

_PREFIX = "PULSAR_MIGRATE_"
_BEARER = "Bearer "
_SPARK_PORT = {"spark": 7077, "k8s": 443}


def process_checks(settings: Settings) -> list[Check]:
    """Return all checks of a worker's settings except those of Temporal."""
    checks = [
        Check("java", _java),
        Check("Spark", partial(_spark, settings.spark_master)),
        Check("protection of Spark", partial(_spark_protection, settings)),
        Check("metrics", partial(_metrics, settings.metrics_address)),
    ]
    files = [*_files(settings), *_access_files()]
    return [*checks, *files, *_commands(settings), *credential_checks(settings), *_webhook(settings)]


def reach(host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
    """Connect, and start TLS if a context is given.

    Raises:
        CommandFailed: the server cannot be reached.
    """
    try:
        with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT) as plain:
            if tls is not None:
                tls.wrap_socket(plain, server_hostname=host).close()
    except OSError as error:
        cause = f"{host}:{port} cannot be reached: {_reason(error)}"
        raise CommandFailed(ExitCode.UNREACHABLE, cause, "check the address, the network and the server") from error


def variable(field: str) -> str:
    """Return the environment variable of a setting."""
    return f"{_PREFIX}{field.upper()}"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"
    cure = f"install Java {OLDEST_JAVA} or newer, and put it on the PATH or set JAVA_HOME"
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=30, check=True, env=child_environment({})
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandFailed(ExitCode.USAGE, f"{program} does not run: {error}", cure) from error
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', done.stderr + done.stdout)
    if match is None:
        raise CommandFailed(ExitCode.USAGE, f"{program} -version prints no version", cure)
    if int(match[1]) < OLDEST_JAVA:
        raise CommandFailed(ExitCode.USAGE, f"{program} is Java {match[1]}", cure)
    return f"{program} is Java {match[1]}"


def _spark(master: str) -> str:
    scheme, _, rest = master.partition("://")
    engine = f"PySpark {version('pyspark')}"
    if re.fullmatch(r"local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[.+\]", master):
        return f"{engine}, on this machine ({master})"
    if master == "yarn":
        folder = os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR") or ""
        if not folder or not Path(folder).is_dir():
            cause = f"{variable('spark_master')}=yarn needs the cluster's configuration, which is missing"
            raise CommandFailed(ExitCode.USAGE, cause, "set HADOOP_CONF_DIR to its folder")
        return f"{engine}, on the cluster that {folder} describes"
    if scheme not in _SPARK_PORT:
        cause = f"invalid Spark master {master!r}"
        raise CommandFailed(
            ExitCode.USAGE, cause, f"set {variable('spark_master')} to local[*], spark://, k8s:// or yarn"
        )
    # Standby masters follow the first one, with commas; Kubernetes' address has a scheme of its own.
    address = urlsplit("//" + rest.rpartition("://")[2].split(",")[0])
    reach(address.hostname or "", address.port or _SPARK_PORT[scheme])
    return f"{engine}; {master} takes connections"


def _spark_protection(settings: Settings) -> str:
    try:
        check_protection(settings)
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "a worker does not start without it") from error
    if is_local(settings.spark_master):
        return "all tasks run on this machine"
    return "executors are authenticated, their links are encrypted, and they read secrets from files"


def _metrics(address: str) -> str:
    if not address:
        return f"turned off ({variable('metrics_address')} is empty)"
    host, _, port = address.rpartition(":")
    cure = f"set {variable('metrics_address')} to a free host:port, or to nothing for no metrics"
    if not host or not port.isdigit():
        raise CommandFailed(ExitCode.USAGE, f"invalid metrics address {address!r}", cure)
    try:
        with socket.create_server(
            (host.strip("[]"), int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ):
            return f"{address} is free"
    except OSError as error:
        if _serves_metrics(address):
            return f"{address} is served by a running worker"
        raise CommandFailed(ExitCode.USAGE, f"{address} cannot be used: {_reason(error)}", cure) from error


def _serves_metrics(address: str) -> bool:
    try:
        answer = httpx.get(f"http://{address}/metrics", timeout=CONNECT_TIMEOUT, trust_env=False)
    except httpx.HTTPError:
        return False
    return "temporal_" in answer.text


def _files(settings: Settings) -> Iterator[Check]:
    yield from _files_of(settings, "")
    for name, credentials in settings.credentials.items():
        yield from _files_of(credentials, f"credentials__{name}__")
    for name, hook in settings.hooks.items():
        yield from _files_of(hook, f"hooks__{name}__")


def _files_of(fields: Credentials | Hook, prefix: str) -> Iterator[Check]:
    """Yield checks of the files in fields `…_tls_ca`, `…_tls_certificate` with `…_tls_key`, and `…_file`."""
    for name in type(fields).model_fields:
        value = str(getattr(fields, name) or "")
        if not value:
            continue
        subject = variable(f"{prefix}{name}")
        # A hook's own fields have no first part.
        if f"_{name}".endswith("_tls_ca"):
            yield Check(subject, partial(check_authorities, subject, value))
        elif f"_{name}".endswith("_tls_certificate"):
            key = str(getattr(fields, f"{name.removesuffix('certificate')}key", ""))
            yield Check(subject, partial(check_identity, subject, value, key))
        elif name == "stop_file":
            yield Check(subject, partial(_stop_file, subject, value))
        elif name.endswith("_file"):
            yield Check(subject, partial(_readable, value))


def _stop_file(subject: str, file: str) -> str | Finding:
    if reason := stop_reason(file):
        return warning(subject, f"no item of a fleet starts: {reason}", f"remove {file}, but not its folder")
    return f"{file} is not there, so fleets run"


def _readable(file: str) -> str:
    path = Path(file.removeprefix("file://"))
    try:
        empty = not path.read_bytes().strip()
    except OSError as error:
        cause = f"{path} cannot be read: {_reason(error)}"
        raise CommandFailed(ExitCode.USAGE, cause, "name a file that the worker can read") from error
    if empty:
        raise CommandFailed(ExitCode.USAGE, f"{path} is empty", "write the secret into it")
    return f"{path} can be read"


def _access_files() -> Iterator[Check]:
    """Yield checks of the files of payload keys, and of the gateway's tokens, that this environment names."""
    for subject, check in (
        (f"{PAYLOAD_PREFIX}KEYS_FILE", _payload_keys),
        (f"{GATEWAY_PREFIX}TOKENS_FILE", _gateway_tokens),
    ):
        if file := os.environ.get(subject):
            yield Check(subject, partial(check, subject, Path(file)))


def _payload_keys(subject: str, file: Path) -> str | Finding:
    keys = keys_of(PayloadSettings(keys_file=str(file)))
    if stat.S_IMODE(file.stat().st_mode) & stat.S_IRWXO:
        return warning(subject, f"all users of this machine have access to {file}", f"run chmod o-rwx {file}")
    return f"{file} has {Unit(noun='keys').format(len(keys.ciphers))}"


def _gateway_tokens(subject: str, file: Path) -> str | Finding:
    try:
        Tokens(file)
    except FileError as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "correct the file") from error
    if stat.S_IMODE(file.stat().st_mode) & stat.S_IWOTH:
        return warning(subject, f"all users of this machine can change {file}", f"run chmod o-w {file}")
    return f"{file} is valid"


def _commands(settings: Settings) -> Iterator[Check]:
    for name in type(settings).model_fields:
        command = getattr(settings, name)
        if name.endswith("_command") and command:
            yield Check(variable(name), partial(_executable, command))
    for name, hook in settings.hooks.items():
        if hook.command:
            yield Check(variable(f"hooks__{name}__command"), partial(_executable, hook.command))


def _executable(command: tuple[str, ...]) -> str:
    path = shutil.which(command[0])
    if path is None:
        cause = f"{command[0]!r} is not a program that can be run here"
        raise CommandFailed(
            ExitCode.USAGE, cause, "name a program on the PATH, or its whole path, and make it executable"
        )
    return f"{path} can be run"


def _webhook(settings: Settings) -> Iterator[Check]:
    if settings.broker_webhook:
        yield Check(variable("broker_webhook"), partial(_connects, settings.broker_webhook, Tls()))
        setting = variable("broker_webhook_secret_file")
        keys = SecretKeys(settings.broker_webhook_secret, settings.broker_webhook_secret_file, setting)
        if keys.given:
            yield Check("secret of the webhook", partial(_secret, keys))
    for name, hook in settings.hooks.items():
        if hook.url:
            tls = Tls(hook.tls_ca or None, hook.tls_certificate or None, hook.tls_key or None)
            yield Check(variable(f"hooks__{name}__url"), partial(_connects, hook.url, tls))
            keys = SecretKeys(hook.secret, hook.secret_file, variable(f"hooks__{name}__secret_file"))
            yield Check(f"secret of the hook {name}", partial(_secret, keys))


def _secret(keys: SecretKeys) -> str:
    try:
        count = len(keys.read())
    except NoCredentials as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "make one with: openssl rand -base64 32") from error
    return "requests are signed" if count == 1 else f"requests have {count} signatures, as during a change"


def _connects(address: str, tls: Tls) -> str:
    """Check the connection only: a request would stop or start brokers, or look like an event."""
    url = urlsplit(address)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise CommandFailed(ExitCode.USAGE, f"invalid web address {address!r}", "write http://… or https://…")
    secure = url.scheme == "https"
    try:
        context = tls.context() if secure else None
    except OSError as error:
        cause = f"the files of its TLS settings cannot be used: {_reason(error)}"
        raise CommandFailed(ExitCode.USAGE, cause, "correct them") from error
    reach(url.hostname, url.port or (443 if secure else 80), context)
    return f"{url.scheme}://{url.netloc} takes connections"


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        # Its number is one of OpenSSL.
        return str(error)
    return os.strerror(error.errno) if error.errno else str(error)


def credential_checks(settings: Settings) -> Iterator[Check]:
    """Yield a check for each kind of credentials that is configured."""
    for name in ("", *settings.credentials):
        yield from _checks_of(settings, name)
    webhook = token_auth(settings.broker_webhook_token, settings.broker_webhook_token_file)
    if webhook is not None:
        yield Check("credentials for the webhook", partial(_http, "credentials for the webhook", webhook))


def _checks_of(settings: Settings, name: str) -> Iterator[Check]:
    credentials, suffix = settings.credentials_of(name), f" ({name})" if name else ""
    if credentials.zookeeper_auth or credentials.zookeeper_auth_file or credentials.zookeeper_sasl_username:
        subject = f"credentials for ZooKeeper{suffix}"
        yield Check(subject, partial(_zookeeper, subject, credentials))
    if credentials.oxia_token_file or is_given(credentials.oxia_token):
        subject = f"credentials for Oxia{suffix}"
        yield Check(subject, partial(_oxia, subject, settings, name))
    if credentials.has_secret:
        yield Check(f"hosts of credentials{suffix}", partial(_hosts, settings, name))
    brokers = AdminAccess.from_settings(settings, name).auth
    if brokers is not None:
        subject = f"credentials for brokers{suffix}"
        yield Check(subject, partial(_http, subject, brokers))


def _hosts(settings: Settings, name: str) -> str | Finding:
    destinations = settings.destinations_of(name)
    if not destinations.hosts:
        cause = f"{destinations.setting}HOSTS is not set, so these credentials may go to no server"
        cure = "set it to the hosts of the cluster; `pulsar-migrate doctor` with an input prints the line"
        raise CommandFailed(ExitCode.USAGE, cause, cure)
    if destinations.allow_plain:
        cure = f"use TLS, and remove {destinations.setting}ALLOW_PLAIN"
        return warning(f"hosts of credentials{f' ({name})' if name else ''}", "secrets may be sent in clear text", cure)
    return ", ".join(destinations.hosts)


def _zookeeper(subject: str, credentials: Credentials) -> str | Finding:
    try:
        access = ZooKeeperAccess.of(credentials, Destinations())
        pairs = access.auth_pairs()
    except (ValueError, NoCredentials) as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "correct the setting") from error
    texts = [f"a login as {access.login.username}"] if access.login else []
    if pairs:
        many = Unit(noun="credentials").format(len(pairs))
        texts.append(f"{many} of the schemes {', '.join(sorted({scheme for scheme, _ in pairs}))}")
    text = " and ".join(texts)
    if access.tls is None:
        return warning(subject, f"{text}, without TLS", "set zookeeper_tls_ca, and give the servers' secureClientPort")
    return text


def _oxia(subject: str, settings: Settings, name: str) -> str | Finding:
    try:
        access = OxiaAccess.of(settings.credentials_of(name), settings.destinations_of(name))
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, str(error), "correct the setting") from error
    if access.tls is None:
        return warning(subject, "a token, without TLS", "set oxia_tls_ca, and give the servers' port with TLS")
    return "a token, with TLS"


def _http(subject: str, auth: httpx.Auth) -> str | Finding:
    """Authenticate a request that is never sent; with OAuth2 this gets a token."""
    request = httpx.Request("GET", "http://localhost")
    try:
        signed = next(auth.sync_auth_flow(request))
    except StoreError as error:
        code = ExitCode.UNREACHABLE if isinstance(error, StoreUnreachable) else ExitCode.USAGE
        raise CommandFailed(code, str(error), "check the files and addresses that the settings name") from error
    return token_life(subject, signed.headers.get("Authorization", "").removeprefix(_BEARER))


def token_life(subject: str, token: str) -> str | Finding:
    """Return until when a token is valid, if it is a JSON web token.

    Raises:
        CommandFailed: the token has expired.
    """
    end = _expiry(token)
    now = datetime.now(UTC)
    if end is None:
        return "a token without an expiry time"
    if end <= now:
        raise CommandFailed(ExitCode.USAGE, f"the token expired {format_value(end)}", "put a new token there")
    if end - now < SOON:
        cure = "a migration may take longer: give it as a file that is renewed, or use OAuth2"
        return warning(subject, f"the token is valid until {format_value(end)}", cure)
    return f"a token that is valid until {format_value(end)}"


def _expiry(token: str) -> datetime | None:
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
