"""Signatures of Standard Webhooks, by the published example and by an independent computation."""

from __future__ import annotations

import base64
from email.message import Message
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from clients.errors import NoCredentials
from clients.pulsar.admin.access import AdminAccess
from clients.pulsar.admin.auth import Token
from clients.pulsar.admin.http import HttpSession
from clients.signature import SecretKeys, Signed, signature_headers
from models.destinations import Destinations
from models.hooks import keys_of
from tests.support.lifecycle.hook_receiver import (
    KEY,
    OTHER_KEY,
    OTHER_SECRET,
    SECRET,
    check_signature,
    hmac_sha256,
)

_BODY = b'{"test": 2432232314}'


def test_the_published_example() -> None:
    """The example that the libraries of the specification share has the same signature here."""
    keys = keys_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert signature_headers(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, _BODY) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_secret_signs(tmp_path: Path) -> None:
    """A file with the new and the previous secret makes two signatures, so that receivers change when they like."""
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n{OTHER_SECRET}\n")
    keys = SecretKeys(SecretStr(""), str(file), "SECRET_FILE").read()
    headers = signature_headers(keys, "a", 7, b"body")
    expected = [base64.b64encode(hmac_sha256(key, b"a.7.body")).decode() for key in (KEY, OTHER_KEY)]
    assert headers["webhook-signature"] == f"v1,{expected[0]} v1,{expected[1]}"


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_c2hvcnQ=", SECRET.removeprefix("whsec_"), f"{SECRET} x", "whsec_!"]
)
def test_wrong_secrets_are_refused(tmp_path: Path, text: str) -> None:
    """A secret of another form is refused, and is not shown."""
    file = tmp_path / "secret"
    file.write_text(text or "\n")
    with pytest.raises(NoCredentials, match="SECRET_FILE") as refused:
        SecretKeys(SecretStr(""), str(file), "SECRET_FILE").read()
    assert KEY.hex() not in str(refused.value)
    assert not text or text.removeprefix("whsec_") not in str(refused.value) or text == "whsec_"


def test_requests_with_a_token_are_signed_too() -> None:
    """A request of the webhook for brokers has its token and a signature of its body, also after a redirect."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(307, headers={"location": "/there"}) if len(asked) == 1 else httpx.Response(204)

    keys = SecretKeys(SecretStr(SECRET), "", "SECRET_FILE")
    access = AdminAccess(auth=Signed(keys, "run/7/stop", Token(SecretStr("open"))), destinations=Destinations(("one",)))
    with HttpSession(access, transport=httpx.MockTransport(answer)) as session:
        session.request("POST", "https://one/brokers", json={"action": "stop"})
    assert [request.url.path for request in asked] == ["/brokers", "/there"]
    for request in asked:
        headers = Message()
        for name, value in request.headers.items():
            headers[name] = value
        check_signature(headers, request.content)
        assert (headers["webhook-id"], headers["authorization"]) == ("run/7/stop", "Bearer open")
