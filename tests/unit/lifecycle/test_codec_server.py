"""The codec server's endpoints, and who may call them."""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from temporal.codec_server import MAX_BODY_BYTES, CodecServerSettings, build_app
from temporal.encryption import EncryptionCodec, Keys
from tests.support.lifecycle.keys import key_line

UI = "http://127.0.0.1:8233"
TOKEN = "a-token"
PLAIN = {"metadata": {"encoding": base64.b64encode(b"json/plain").decode()}, "data": base64.b64encode(b'"a"').decode()}


@pytest.fixture
def codec(tmp_path: Path) -> EncryptionCodec:
    """Return a codec that also passes plain payloads, as the server's does."""
    file = tmp_path / "keys"
    file.write_text(key_line("k"))
    return EncryptionCodec(Keys(file), read_plain=True)


def client(codec: EncryptionCodec, base: str = "http://127.0.0.1:8081", **settings: Any) -> httpx.AsyncClient:
    """Return a client of a server."""
    transport = httpx.ASGITransport(build_app(codec, CodecServerSettings(**settings)))
    return httpx.AsyncClient(transport=transport, base_url=base)


async def decode(server: httpx.AsyncClient, **headers: str) -> httpx.Response:
    """Ask for one payload."""
    return await server.post("/decode", json={"payloads": [PLAIN]}, headers=headers)


async def test_payloads_are_encrypted_and_decrypted(codec: EncryptionCodec) -> None:
    """`/encode` and `/decode` take and return payloads as Temporal's clients write them; plain ones pass."""
    server = client(codec)
    encrypted = (await server.post("/encode", json={"payloads": [PLAIN, PLAIN]})).json()["payloads"]
    assert [base64.b64decode(payload["metadata"]["encoding"]) for payload in encrypted] == [b"binary/encrypted"] * 2
    assert (await server.post("/decode", json={"payloads": [*encrypted, PLAIN]})).json() == {"payloads": [PLAIN] * 3}


async def test_only_pages_of_the_web_ui_may_call(codec: EncryptionCodec) -> None:
    """The browser may send a page of the Web UI's origin; a page of another origin is refused."""
    server = client(codec, web_ui_origin=UI)
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-namespace"}
    allowed = await server.options("/decode", headers={"Origin": UI, **asked})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, UI)
    assert (await decode(server, Origin=UI)).headers["access-control-allow-origin"] == UI
    other = await server.options("/decode", headers={"Origin": "https://evil.example", **asked})
    assert other.status_code == 400
    assert "access-control-allow-origin" not in other.headers
    assert (await decode(server, Origin="https://evil.example")).status_code == 403
    assert (await decode(client(codec), Origin=UI)).status_code == 403, "no origin is set, so no page may call"


async def test_a_name_of_an_attacker_for_this_machine_is_refused(codec: EncryptionCodec) -> None:
    """A request for another host name is refused: its page has that name, and could read the answer."""
    refused = await decode(client(codec, base="http://attacker.example:8081"))
    assert refused.status_code == 403
    assert (await decode(client(codec, base="http://localhost:8081"))).status_code == 200


async def test_a_token_is_required_where_one_is_set(codec: EncryptionCodec) -> None:
    """Without the token, or with another one, nothing is decrypted."""
    server = client(codec, base="https://codec.example.com", token_sha256=sha256(TOKEN.encode()).hexdigest())
    assert (await decode(server)).status_code == 401
    assert (await decode(server, Authorization="Bearer other")).status_code == 401
    assert (await decode(server, Authorization=f"Bearer {TOKEN}")).status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"[" * 100_000, "application/json", 400),
        (b"{}x", "application/json", 400),
        (b'{"payloads": 1}', "application/json", 400),
        (b'{"payloads": [{"data": 5}]}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"payloads": []}', "text/plain", 415),
        (b" " * (MAX_BODY_BYTES + 1), "application/json", 413),
    ],
    ids=["deep", "rest", "number", "data", "bytes", "type", "large"],
)
async def test_wrong_bodies_are_refused(codec: EncryptionCodec, body: bytes, kind: str, status: int) -> None:
    """A body that is not a list of payloads, or too large, is refused with a reason."""
    answer = await client(codec).post("/decode", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert answer.json()["error"].startswith(("send", "call"))


async def test_an_unknown_key_is_named(codec: EncryptionCodec, tmp_path: Path) -> None:
    """A payload of another key is an error that names the key."""
    other = tmp_path / "other"
    other.write_text(key_line("elsewhere"))
    encrypted = await client(EncryptionCodec(Keys(other), read_plain=True)).post("/encode", json={"payloads": [PLAIN]})
    refused = await client(codec).post("/decode", json=encrypted.json())
    assert refused.status_code == 400
    assert "'elsewhere'" in refused.json()["error"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"host": "0.0.0.0"}, "would decrypt payloads for every client"),
        ({"host": "0.0.0.0", "token_sha256": "a" * 64}, "would decrypt payloads for every client"),
        ({"host": "0.0.0.0", "tls_certificate": "/c", "tls_key": "/k"}, "would decrypt payloads for every client"),
        ({"tls_certificate": "/c"}, "belong together"),
        ({"web_ui_origin": "*"}, "is not an origin"),
        ({"web_ui_origin": "http://ui.example/path"}, "is not an origin"),
    ],
)
def test_open_servers_are_refused(values: dict[str, str], why: str) -> None:
    """A server that other machines can reach needs TLS and a token."""
    with pytest.raises(ValidationError, match=why):
        CodecServerSettings(**values)  # pyright: ignore[reportArgumentType]
