"""The payload codec that the environment names, the same for worker, gateway, command line and replay."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from temporalio.converter import DataConverter, PayloadCodec

from process.exit_codes import CommandFailed, ExitCode
from process.followed_file import FileError
from process.settings import settings_of
from temporal.converter import DATA_CONVERTER, EncodedFailures
from temporal.encryption import EncryptionCodec, Keys

PREFIX = "PULSAR_MIGRATE_PAYLOAD_"


class PayloadSettings(BaseSettings):
    """Read from the environment, prefix `PULSAR_MIGRATE_PAYLOAD_`. Without any of them payloads are plain.

    Attributes:
        keys_file: file of keys for the codec that is part of the project; read again when it changes.
        read_plain: whether that codec also reads payloads without encryption.
        codec: `module:attribute` of another codec: an object with `encode` and `decode`, or what returns one.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    keys_file: str = ""
    read_plain: bool = False
    codec: str = Field(default="", pattern=r"^([A-Za-z_][\w.]*:[A-Za-z_]\w*)?$")

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        if self.keys_file and self.codec:
            raise ValueError("keys_file and codec are both set; give one")
        if self.read_plain and not self.keys_file:
            raise ValueError("read_plain needs keys_file")
        return self


def data_converter() -> DataConverter:
    """Return the converter of a process, with the codec of its environment.

    Raises:
        CommandFailed: the settings are wrong, or the codec cannot be loaded.
    """
    codec = codec_of(settings_of(PayloadSettings, PREFIX))
    if codec is None:
        return DATA_CONVERTER
    return replace(DATA_CONVERTER, payload_codec=codec, failure_converter_class=EncodedFailures)


def codec_of(settings: PayloadSettings) -> PayloadCodec | None:
    """Return the codec that settings name; None for none.

    Raises:
        CommandFailed: it cannot be loaded.
    """
    if settings.keys_file:
        return EncryptionCodec(keys_of(settings), read_plain=settings.read_plain)
    return _load(settings.codec) if settings.codec else None


def keys_of(settings: PayloadSettings) -> Keys:
    """Return the keys of the file that settings name; errors as of `codec_of`."""
    try:
        return Keys(Path(settings.keys_file))
    except FileError as error:
        raise CommandFailed(ExitCode.USAGE, f"{error}.", f"correct the file of {PREFIX}KEYS_FILE") from error


def _load(name: str) -> PayloadCodec:
    module, _, attribute = name.partition(":")
    cure = f"set {PREFIX}CODEC to module:attribute of a temporalio.converter.PayloadCodec that is installed"
    try:
        loaded: Any = getattr(import_module(module), attribute)
        codec = loaded if isinstance(loaded, PayloadCodec) else loaded()
    # Code of the operator: whatever it raises, the codec is not there.
    except Exception as error:
        cause = f"the payload codec {name} cannot be loaded: {type(error).__name__}: {error}."
        raise CommandFailed(ExitCode.USAGE, cause, cure) from error
    if not isinstance(codec, PayloadCodec):
        raise CommandFailed(ExitCode.USAGE, f"{name} is not a payload codec, but {type(codec).__name__}.", cure)
    return codec
