"""Logins by SASL DIGEST-MD5, as ZooKeeper and BookKeeper take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from puresasl import SASLError, SASLProtocolException
from puresasl.client import SASLClient

from clients.errors import NoCredentials, StoreDenied
from clients.secret_files import secret_text
from models.credentials import Credentials
from models.redaction import remember


@dataclass(frozen=True)
class Login:
    """A name and its password; plain data, so that it can be sent to an executor.

    Attributes:
        kind: prefix of its settings: `zookeeper` or `bookie`.
        username: the name.
        password: its password.
        password_file: file that holds the password instead; read for each connection.
    """

    kind: str
    username: str
    password: str = field(default="", repr=False)
    password_file: str = ""

    @classmethod
    def of(cls, credentials: Credentials, kind: str) -> Self | None:
        """Return the login of a set of credentials; None if it has none.

        Raises:
            ValueError: the file of the password cannot be read.
        """
        username, password, file = (
            getattr(credentials, f"{kind}_sasl_{suffix}") for suffix in ("username", "password", "password_file")
        )
        if not username:
            return None
        login = cls(kind, username, password.get_secret_value(), file)
        try:
            login.current_password()
        except NoCredentials as error:
            raise ValueError(str(error)) from error
        return login

    def current_password(self) -> str:
        """Return the password.

        Raises:
            NoCredentials: its file cannot be read.
        """
        password = self.password
        if self.password_file:
            password = secret_text(self.password_file, f"{self.kind}_sasl_password_file").strip()
        remember(password)
        return password

    def options(self) -> dict[str, Any]:
        """Return the options of pure-sasl's client, besides host and service."""
        # Asked at each login: a session of kazoo logs in again whenever it connects.
        return {"mechanism": "DIGEST-MD5", "qops": [b"auth"], "callback": self._property}

    def log_in(self, to: tuple[str, str], exchange: Callable[[bytes], bytes | None], server: str, cure: str) -> None:
        """Log in over a connection.

        Args:
            to: host and service that the server expects, whatever its own are.
            exchange: sends a token, and returns the server's answer; None if it refuses.
            server: name of the server, for errors.
            cure: what else to check if the server offers no such login.

        Raises:
            StoreDenied: the server refuses the login, or offers none.
            NoCredentials: the password's file cannot be read.
        """
        refused = f"{server} refuses the login of {self.username!r} (SASL DIGEST-MD5)"
        client: Any = SASLClient(*to, **self.options())  # its methods have no types
        challenge = None
        try:
            while not client.complete:
                response = client.process(challenge)
                if client.complete and not response:
                    break
                challenge = exchange(response or b"")
                if challenge is None:
                    text = f"{refused}; check {self.kind}_sasl_username and its password"
                    raise StoreDenied(text, server=server)
                if not (challenge or client.complete):
                    raise StoreDenied(f"{server} offers no login by SASL DIGEST-MD5; {cure}", server=server)
        # pure-sasl fails with the latter ones where a challenge lacks something.
        except (SASLError, SASLProtocolException, LookupError, ValueError, TypeError, AttributeError) as error:
            raise StoreDenied(f"{refused}: its challenge is invalid ({error!r})", server=server) from error
        finally:
            client.dispose()

    def _property(self, name: str) -> str:
        return self.current_password() if name == "password" else self.username
