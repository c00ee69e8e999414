"""`pulsar-migrate init KIND`: write a plan file from what a running cluster tells, and from answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import typer
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic_core import PydanticUndefined

from cli.documents import Document, DocumentFault
from cli.inputs import INLINE, InvalidInput, input_of, nested_model
from cli.options import hint, read_settings
from cli.plan_files import SCHEMAS
from cli.pulsarctl import CONFIG, Context, read_context
from models.addresses import WebUrl
from models.base import fault_text
from models.broker_settings import metadata_store_of
from models.field_texts import INTERNAL, field_texts, model_text
from models.store_url import parse_broker_setting
from process.exit_codes import CommandFailed, ExitCode
from worker.catalog import ALL, Registered

_Url = Annotated[str | None, typer.Option("--admin-url", metavar="URL", help="Admin interface of a running broker.")]
_ContextName = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of pulsarctl with that address.")
]
_Config = Annotated[Path, typer.Option("--pulsarctl-config", metavar="FILE", help="File of pulsarctl.")]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Value of a field; `.` between names. May be given repeatedly."),
]
_URL = TypeAdapter[str](WebUrl)
_To = Annotated[Path, typer.Option("--to", metavar="FILE", help="File to write.")]


def init_command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of {', '.join(ALL)}.")],
    *,
    admin_url: _Url = None,
    context: _ContextName = None,
    pulsarctl_config: _Config = CONFIG,
    set_: _Set = None,
    to: _To = Path("plan.yaml"),
) -> None:
    """Write a commented plan file. It asks the running cluster, and in a terminal you, for the needed fields."""
    if kind not in ALL:
        raise CommandFailed(ExitCode.USAGE, f"unknown kind {kind!r}", f"valid kinds: {', '.join(ALL)}")
    chosen, login = ALL[kind], None
    try:
        if context is not None:
            login = read_context(pulsarctl_config, context)
    except DocumentFault as fault:
        raise CommandFailed(ExitCode.USAGE, str(fault), fault.cure) from fault
    url = admin_url or (login.admin_url if login else "")
    values = _from_cluster(chosen, url, login) if url else {}
    for pair in set_ or ():
        name, separator, text = pair.partition("=")
        if not separator:
            raise CommandFailed(ExitCode.USAGE, f"--set: {pair!r} is not FIELD=VALUE", "write FIELD=VALUE")
        _put(values, chosen.input, name.split("."), text)
    try:
        _ask(values, chosen.input)
    except typer.Abort:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    text = "".join(_lines(chosen, values, login))
    try:
        checked = input_of(chosen.input, Document(INLINE, values, {(): 1}), {})
    except InvalidInput as error:
        raise CommandFailed(
            ExitCode.USAGE, f"the plan would be wrong: {error}.", f"give the value: --set FIELD=VALUE; {error.fields}"
        ) from error
    try:
        with to.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        cure = "name another file with --to, or remove this one"
        raise CommandFailed(ExitCode.USAGE, f"{to}: {error.strerror}.", cure) from error
    print(f"wrote {to}: {checked.summary}")
    hint(f"next: pulsar-migrate validate {to}; pulsar-migrate doctor {to}; pulsar-migrate plan {to}")


def _from_cluster(kind: Registered, url: str, login: Context | None) -> dict[str, Any]:
    """Return the fields that a running cluster tells.

    Raises:
        CommandFailed: it does not answer, or refuses.
    """
    # Imported here: clients take time to import.
    from clients.errors import StoreError
    from clients.pulsar.admin.access import AdminAccess, token_auth
    from clients.pulsar.admin.client import PulsarAdminReader
    from clients.tls import Tls

    try:
        # It may have a path, as behind a proxy.
        url = _URL.validate_python(url)
    except ValidationError as error:
        fault = error.errors()[0]
        raise CommandFailed(
            ExitCode.USAGE, f"the address of the broker: {fault_text(fault['type'], fault['msg'])}.", "correct it"
        ) from error
    access = AdminAccess.from_settings(read_settings())
    if login and (login.token.get_secret_value() or login.token_file):
        # As pulsarctl does: to this one address, also without TLS.
        own = access.destinations._replace(hosts=(urlsplit(url).hostname or "",), allow_plain=True)
        tls = Tls(ca_file=login.ca_file) if login.ca_file else access.tls
        auth = token_auth(SecretStr(login.token.get_secret_value()), login.token_file)
        access = replace(access, auth=auth, tls=tls, destinations=own)
    try:
        with PulsarAdminReader.open(access, [url]) as admin:
            settings = admin.brokers.runtime_configuration()
            cluster = settings.get("clusterName", "")
            scheme = urlsplit(url).scheme
            urls = sorted(f"{scheme}://{name}" for name in admin.brokers.names(cluster)) or [url]
            store = str(parse_broker_setting(metadata_store_of(settings)))
    except (StoreError, ValueError) as error:
        cure = "check the address; credentials are PULSAR_MIGRATE_ADMIN_*, or a context of pulsarctl"
        raise CommandFailed(ExitCode.UNREACHABLE, f"{url} cannot be asked: {error}.", cure) from error
    hint(f"{url}: cluster {cluster}, {len(urls)} brokers, metadata store {store}")
    access_fields: dict[str, Any] = {"metadata_url": store, "admin_urls": urls}
    ledgers = settings.get("bookkeeperMetadataServiceUri") or f"metadata-store:{store}"
    fields: dict[str, Any] = {
        "metadata-store": {"source": store},
        "bookie-cluster": {"metadata_url": store, "source": {"metadataServiceUri": ledgers}},
        "blue-green": {"blue": {**access_fields, **_service_urls(url, settings)}},
    }.get(kind.name, access_fields)
    return {"cluster": cluster, **fields}


def _service_urls(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    host, is_tls = urlsplit(url).hostname or "", url.startswith("https:")
    port = settings.get("brokerServicePortTls" if is_tls else "brokerServicePort", "")
    suffix, scheme = ("_tls", "pulsar+ssl") if is_tls else ("", "pulsar")
    return {f"service_url{suffix}": url, f"broker_service_url{suffix}": f"{scheme}://{host}:{port}"}


def _put(values: dict[str, Any], model: type[BaseModel], path: list[str], text: str) -> None:
    """Set a value; a list has `,` between its items."""
    name, *below = path
    field = model.model_fields.get(name)
    inner = nested_model(field.annotation) if field else None
    if below and inner:
        # A value before it is replaced, as by each later `--set` of the same field.
        values[name] = {**values[name]} if isinstance(values.get(name), dict) else {}
        _put(values[name], inner, below, text)
    else:
        is_list = field is not None and "tuple" in str(field.annotation)
        values[name] = text.split(",") if is_list else {"true": True, "false": False}.get(text, text)


def _ask(values: dict[str, Any], model: type[BaseModel], above: str = "") -> None:
    """Ask for the needed fields that have no value; without a terminal they stay empty."""
    texts = field_texts(model)
    for name, field in model.model_fields.items():
        if not field.is_required():
            continue
        if inner := nested_model(field.annotation):
            _ask(values.setdefault(name, {}), inner, f"{above}{name}.")
        elif name not in values and sys.stdin.isatty():
            _put(values, model, [name], typer.prompt(f"{above}{name} ({texts.get(name, 'needed').rstrip('.')})"))


def _lines(kind: Registered, values: Mapping[str, Any], login: Context | None) -> Iterator[str]:
    yield f"# yaml-language-server: $schema={SCHEMAS}/{kind.name}.json\n"
    yield f"# {model_text(kind.input)}\n"
    yield "# Credentials are settings of the worker, and never in this file: see docs/operations.md.\n"
    if login:
        for setting, file in (
            ("ADMIN_TOKEN_FILE", login.token_file),
            ("ADMIN_TLS_CA", login.ca_file),
            ("ADMIN_OAUTH2_KEY_FILE", login.oauth2_key_file),
        ):
            if file:
                yield f"# The context {json.dumps(login.name)} uses PULSAR_MIGRATE_{setting}={file}\n"
        if login.token.get_secret_value():
            yield f"# The context {json.dumps(login.name)} has a token: put it into PULSAR_MIGRATE_ADMIN_TOKEN_FILE.\n"
    yield f"kind: {kind.name}\n"
    yield from _field_lines(kind.input, values, "")


def _field_lines(model: type[BaseModel], values: Mapping[str, Any], indent: str) -> Iterator[str]:
    texts = field_texts(model)
    for name, field in model.model_fields.items():
        if INTERNAL in field.metadata or (name not in values and indent):
            continue
        yield f"\n{indent}# {texts.get(name, name)}\n"
        inner = nested_model(field.annotation)
        if name in values and inner and isinstance(values[name], dict):
            yield f"{indent}{name}:\n"
            yield from _field_lines(inner, cast("dict[str, Any]", values[name]), f"{indent}  ")
        elif name in values:
            yield f"{indent}{name}: {json.dumps(values[name], ensure_ascii=False)}\n"
        else:
            default = model.model_json_schema()["properties"].get(field.alias or name, {}).get("default")
            shown = default if field.default is not PydanticUndefined else None
            yield f"# {name}: {json.dumps(shown, ensure_ascii=False)}\n"
