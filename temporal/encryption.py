"""Encryption of payloads: AES-256-GCM with keys from a file, in the format of Temporal's own samples."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from models.redaction import remember
from process.followed_file import FileError, FollowedFile

ENCRYPTED = b"binary/encrypted"
"""Encoding of an encrypted payload, as in Temporal's samples."""

REFUSED = "binary/refused"
"""Encoding of a payload that came without encryption: its data say why it is not read."""

UNREADABLE = "binary/unreadable"
"""Encoding of a payload that cannot be decrypted now: its data say why."""

_KEY_ID = "encryption-key-id"
_KEY_BYTES, _NONCE_BYTES = 32, 12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class PayloadUnreadable(RuntimeError):
    """A payload cannot be decrypted; the message has the cause and the cure."""


def unreadable_because(error: BaseException) -> str:
    """Return why a payload cannot be decrypted, if an error says so; else empty."""
    # The SDK's converter wraps what ours raises.
    faults = (error, error.__cause__)
    return next((str(fault) for fault in faults if isinstance(fault, PayloadUnreadable)), "")


class Keys:
    """The keys of a file, which is read again when it changes.

    One line for each key: its id, and 32 random bytes in Base64; `#` starts a comment. The first key encrypts, all of
    them decrypt. If a changed file is wrong, the previous keys stay valid: a migration would otherwise stop halfway.

    Args:
        file: the file of keys.

    Raises:
        FileError: the file is wrong, or cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._followed = FollowedFile(file, _parse, keeps=True)

    @property
    def ciphers(self) -> dict[str, AESGCM]:
        """Ciphers by the ids of their keys; the first one encrypts."""
        return self._followed.content() or {}


class EncryptionCodec(PayloadCodec):
    """Encrypts and decrypts payloads.

    Args:
        keys: of a file.
        read_plain: whether payloads without encryption are read too, as older runs have them.
    """

    def __init__(self, keys: Keys, *, read_plain: bool) -> None:
        self._keys = keys
        self._read_plain = read_plain

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads with the first key."""
        key_id, cipher = next(iter(self._keys.ciphers.items()))
        metadata = {"encoding": ENCRYPTED, _KEY_ID: key_id.encode()}
        return [Payload(metadata=metadata, data=_encrypt(cipher, payload)) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads; those that are refused have another encoding, and their converter raises.

        An error here would stop each task of a workflow, so that one signal of any client could end its progress.
        """
        ciphers = self._keys.ciphers
        return [self._decode(ciphers, payload) for payload in payloads]

    def _decode(self, ciphers: dict[str, AESGCM], payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCRYPTED:
            if self._read_plain:
                return payload
            return Payload(metadata={"encoding": REFUSED.encode()}, data=_PLAIN.encode())
        key_id = payload.metadata.get(_KEY_ID, b"").decode(errors="replace")
        cipher = ciphers.get(key_id)
        if cipher is None:
            return _unreadable(
                f"a payload is encrypted with the key {key_id[:64]!r}, which {self._keys.file} does not have; add this "
                "key to the file"
            )
        try:
            nonce, data = payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:]
            return Payload.FromString(cipher.decrypt(nonce, data, None))
        except (InvalidTag, ValueError, DecodeError):
            return _unreadable(
                f"a payload cannot be decrypted with the key {key_id!r}: it was changed, or another key has this id in "
                "the process that encrypted it; give all processes the same file of keys"
            )


_PLAIN = (
    "a payload is not encrypted; the client that sent it needs PULSAR_MIGRATE_PAYLOAD_KEYS_FILE, or for `temporal` "
    "--codec-endpoint; PULSAR_MIGRATE_PAYLOAD_READ_PLAIN=true reads migrations from before the encryption"
)


def _unreadable(why: str) -> Payload:
    # mutant: shared/a-signal-of-another-key-stops-a-workflow
    return Payload(metadata={"encoding": UNREADABLE.encode()}, data=why.encode())


def _encrypt(cipher: AESGCM, payload: Payload) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, payload.SerializeToString(), None)


def _parse(file: Path, content: bytes) -> dict[str, AESGCM]:
    ciphers: dict[str, AESGCM] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        key = _key(words[1]) if len(words) == 2 and _NAME.fullmatch(words[0]) else b""
        if len(key) != _KEY_BYTES:
            raise FileError(f"{file}, line {number}: invalid; expected the id of a key, and 32 bytes in Base64")
        if words[0] in ciphers:
            raise FileError(f"{file}, line {number}: the key id {words[0]} is used twice")
        remember(words[1], permanent=True)
        ciphers[words[0]] = AESGCM(key)
    if not ciphers:
        raise FileError(f"{file} has no key; add a line with an id and the output of `openssl rand -base64 32`")
    return ciphers


def _key(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
