"""Encryption of payloads: keys, format, refusals, and the codec that the environment names."""

from __future__ import annotations

import base64
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.exceptions import ApplicationError

from models.lifecycle.failures import FailureKind
from models.lifecycle.input import Continued
from models.metadata_store.input import MetadataStoreInput
from process.exit_codes import CommandFailed, ExitCode
from process.followed_file import FileError
from temporal.codec import data_converter
from temporal.converter import DATA_CONVERTER
from temporal.encryption import EncryptionCodec, Keys, PayloadUnreadable
from tests.support.lifecycle.keys import key_line

MARK = "host-of-the-cluster.example.com"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"plain"')


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    """Return a file with one key, `old`."""
    file = tmp_path / "keys"
    file.write_text(key_line("old"))
    return file


def codec(file: Path, *, read_plain: bool = False) -> EncryptionCodec:
    """Return the codec of a file of keys."""
    return EncryptionCodec(Keys(file), read_plain=read_plain)


def text_of(file: Path) -> str:
    """Return the contents of a file."""
    return file.read_text()


def write(file: Path, text: str) -> None:
    """Replace the contents of a file."""
    file.write_text(text)


async def test_payloads_are_those_of_the_samples_of_temporal(keys_file: Path) -> None:
    """A nonce of 12 bytes, then the serialized payload in AES-256-GCM; the metadata name encoding and key."""
    (encrypted,) = await codec(keys_file).encode([PLAIN])
    assert dict(encrypted.metadata) == {"encoding": b"binary/encrypted", "encryption-key-id": b"old"}
    key = base64.b64decode(text_of(keys_file).split()[1])
    plain = AESGCM(key).decrypt(encrypted.data[:12], encrypted.data[12:], None)
    assert Payload.FromString(plain) == PLAIN
    assert await codec(keys_file).decode([encrypted]) == [PLAIN]
    assert await codec(keys_file).encode([PLAIN]) != [encrypted], "each payload needs a nonce of its own"


async def test_size_grows_little(keys_file: Path) -> None:
    """A payload near the limit of 2 MB stays near it: encryption adds less than 200 bytes."""
    large = Payload(metadata={"encoding": b"json/plain"}, data=os.urandom(1_900_000))
    (encrypted,) = await codec(keys_file).encode([large])
    assert encrypted.ByteSize() - large.ByteSize() < 200


def why_unreadable(decoded: list[Payload]) -> str:
    """Return why values cannot be read, inputs of workflows too: each is an error that is tried again."""
    (payload,) = decoded
    for hint in (MetadataStoreInput | Continued, MetadataStoreInput, str):
        with pytest.raises(RuntimeError) as unreadable:
            DATA_CONVERTER.payload_converter.from_payload(payload, hint)  # pyright: ignore[reportArgumentType]
        assert isinstance(unreadable.value.__cause__, PayloadUnreadable)
    return payload.data.decode()


async def test_the_first_key_encrypts_and_all_decrypt(keys_file: Path) -> None:
    """A new key in front takes over without a restart; once the old one is removed, its payloads are unreadable."""
    rotating = codec(keys_file)
    before = await rotating.encode([PLAIN])
    old, new = text_of(keys_file), key_line("new")
    write(keys_file, f"# rotated\n{new}\n{old}")
    after = await rotating.encode([PLAIN])
    assert after[0].metadata["encryption-key-id"] == b"new"
    assert await rotating.decode([*before, *after]) == [PLAIN, PLAIN]
    write(keys_file, new)
    assert "the key 'old', which" in why_unreadable(await rotating.decode(before))


async def test_another_key_of_the_same_id_is_an_error(keys_file: Path) -> None:
    """A payload that was changed, or encrypted with another key of that id, is not read."""
    (encrypted,) = await codec(keys_file).encode([PLAIN])
    changed = Payload(metadata=encrypted.metadata, data=encrypted.data[:-1] + bytes([encrypted.data[-1] ^ 1]))
    short = Payload(metadata=encrypted.metadata, data=b"short")
    for payload in (changed, short):
        assert "cannot be decrypted with the key 'old'" in why_unreadable(await codec(keys_file).decode([payload]))
    write(keys_file, key_line("old"))
    assert "give all processes the same file" in why_unreadable(await codec(keys_file).decode([encrypted]))


async def test_a_wrong_file_keeps_the_previous_keys(keys_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that becomes wrong is reported once, and running migrations continue with the previous keys."""
    running = codec(keys_file)
    write(keys_file, "old short")
    with caplog.at_level(logging.ERROR):
        encrypted = await running.encode([PLAIN])
        assert await running.decode(encrypted) == [PLAIN]
    [record] = [record for record in caplog.records if record.name == "process.followed_file"]
    assert record.message.startswith(f"{keys_file}, line 1: invalid; expected the id of a key")
    assert record.message.endswith("its previous content stays valid")


def test_a_deleted_file_keeps_the_keys(keys_file: Path) -> None:
    """Running migrations continue while the file is away."""
    keys = Keys(keys_file)
    keys_file.unlink()
    assert [*keys.ciphers] == ["old"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no key"),
        ("# only a comment", "has no key"),
        ("a U0VDUkVU", "line 1: invalid"),
        ("a " + base64.b64encode(b"SECRET" * 6).decode(), "line 1: invalid"),
        ("only-SECRET", "line 1: invalid"),
        (f"{key_line('a')}\n{key_line('a')}", "line 2: the key id a is used twice"),
        (f"/a {key_line('a').split()[1]}", "line 1: invalid"),
        ("x" * 1_100_000, "more than 1,048,576 bytes"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, why: str) -> None:
    """A file without usable keys is refused, and the message shows no key."""
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(FileError, match=why) as refused:
        Keys(file)
    assert "SECRET" not in str(refused.value)
    assert "U0VD" not in str(refused.value)


async def test_plain_payloads_are_refused_where_they_arrive(keys_file: Path) -> None:
    """A start without encryption fails; anything else raises, so that a signal is dropped and an update refused."""
    (refused,) = await codec(keys_file).decode([PLAIN])
    converter = DATA_CONVERTER.payload_converter
    with pytest.raises(ApplicationError, match="a payload is not encrypted") as failed:
        converter.from_payload(refused, MetadataStoreInput | Continued)  # pyright: ignore[reportArgumentType]
    assert (failed.value.type, failed.value.non_retryable) == (FailureKind.INVALID_INPUT, True)
    with pytest.raises(RuntimeError) as unreadable:
        converter.from_payload(refused, str)
    assert "PULSAR_MIGRATE_PAYLOAD_READ_PLAIN=true" in str(unreadable.value.__cause__)


async def test_plain_payloads_are_read_where_that_is_allowed(keys_file: Path) -> None:
    """Migrations that started before the encryption continue with `READ_PLAIN`."""
    assert await codec(keys_file, read_plain=True).decode([PLAIN]) == [PLAIN]


async def test_failures_are_encrypted(keys_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Message, trace, details and causes of a failure are encrypted; expected failures carry no trace at all."""
    monkeypatch.setenv("PULSAR_MIGRATE_PAYLOAD_KEYS_FILE", str(keys_file))
    converter = data_converter()
    failure = Failure()
    await converter.encode_failure(raised(FailureKind.UNREACHABLE), failure)
    assert MARK not in str(failure)
    assert failure.message == "Encoded failure"
    decoded = await converter.decode_failure(failure)
    assert isinstance(decoded, ApplicationError)
    assert (decoded.message, decoded.details, decoded.type) == (MARK, (MARK,), FailureKind.UNREACHABLE)
    assert str(decoded.cause) == f"RuntimeError: {MARK}"
    assert decoded.failure is not None
    assert not decoded.failure.stack_trace
    other = Failure()
    await converter.encode_failure(raised("Defect"), other)
    decoded_defect = await converter.decode_failure(other)
    assert isinstance(decoded_defect, ApplicationError)
    assert decoded_defect.failure is not None
    assert "def raised" not in decoded_defect.failure.stack_trace
    assert "in raised" in decoded_defect.failure.stack_trace


def raised(kind: str) -> ApplicationError:
    """Return a failure as a step raises it, with a cause."""
    try:
        try:
            raise RuntimeError(MARK)
        except RuntimeError as error:
            raise ApplicationError(MARK, MARK, type=kind) from error
    except ApplicationError as failure:
        return failure


class Reversed(PayloadCodec):
    """Codec of a test, which reverses data."""

    async def encode(self, payloads: Any) -> list[Payload]:
        """Reverse the data."""
        return [Payload(metadata=payload.metadata, data=payload.data[::-1]) for payload in payloads]

    async def decode(self, payloads: Any) -> list[Payload]:
        """Reverse them again."""
        return await self.encode(payloads)


NO_CODEC = "text"


@pytest.mark.parametrize("name", ["Reversed", "reversed_codec"])
async def test_another_codec_is_loaded_by_its_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """`module:attribute` names a codec, or what returns one."""
    monkeypatch.setenv("PULSAR_MIGRATE_PAYLOAD_CODEC", f"{__name__}:{name}")
    payloads = await data_converter().encode(["abc"])
    assert payloads[0].data == b'"cba"'


reversed_codec = Reversed()


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"CODEC": "no_such_module:codec"}, "cannot be loaded: ModuleNotFoundError"),
        ({"CODEC": f"{__name__}:missing"}, "cannot be loaded: AttributeError"),
        ({"CODEC": f"{__name__}:NO_CODEC"}, "cannot be loaded: TypeError"),
        ({"CODEC": "builtins:dict"}, "is not a payload codec, but dict"),
        ({"CODEC": "module"}, "PULSAR_MIGRATE_PAYLOAD_CODEC: "),
        ({"CODECC": "a:b"}, "PULSAR_MIGRATE_PAYLOAD_CODECC is not a setting"),
        ({"KEYS_FILE": "/no/such/file"}, "/no/such/file cannot be read: No such file"),
        ({"KEYS_FILE": "/a", "CODEC": "a:b"}, "keys_file and codec are both set"),
        ({"READ_PLAIN": "true"}, "read_plain needs keys_file"),
    ],
)
def test_wrong_settings_are_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], why: str) -> None:
    """A codec that cannot be used stops the process at its start; it never sends plain payloads instead."""
    for name, value in variables.items():
        monkeypatch.setenv(f"PULSAR_MIGRATE_PAYLOAD_{name}", value)
    with pytest.raises(CommandFailed) as failed:
        data_converter()
    assert why in failed.value.cause
    assert failed.value.code is ExitCode.USAGE


def test_without_settings_payloads_are_plain() -> None:
    """Without these settings nothing changes."""
    converter: DataConverter = data_converter()
    assert converter is DATA_CONVERTER
