"""Credentials and TLS settings for Oxia."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from clients.errors import NoCredentials
from clients.secret_files import is_token, secret_text
from clients.tls import Tls, oxia_tls
from models.credentials import Credentials
from models.destinations import Destinations
from models.redaction import remember


@dataclass(frozen=True)
class OxiaAccess:
    """Credentials and TLS settings for Oxia; plain data, so that it can be sent to an executor.

    Certificates are read for each connection and the token for each call, so that renewed ones are used.

    Attributes:
        token: bearer token; empty for none.
        token_file: file that holds it instead.
        tls: TLS settings; None for plain connections.
        destinations: hosts that may receive the token.
    """

    token: str = field(default="", repr=False)
    token_file: str = ""
    tls: Tls | None = None
    destinations: Destinations = field(default_factory=Destinations)

    @classmethod
    def of(cls, credentials: Credentials, destinations: Destinations) -> Self:
        """Create it from a set of credentials.

        Args:
            credentials: the set.
            destinations: its hosts.

        Raises:
            ValueError: the token is invalid, or its file cannot be read.
        """
        made = cls(
            token=credentials.oxia_token.get_secret_value(),
            token_file=credentials.oxia_token_file,
            tls=oxia_tls(credentials),
            destinations=destinations,
        )
        try:
            made.metadata()
        except NoCredentials as error:
            raise ValueError(str(error)) from error
        return made

    @property
    def has_token(self) -> bool:
        """Whether calls carry a token."""
        return bool(self.token or self.token_file)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call that carry the token; empty without one.

        Raises:
            NoCredentials: the file cannot be read, or what it holds is not a token.
        """
        if not self.has_token:
            return ()
        token = secret_text(self.token_file, "oxia_token_file").strip() if self.token_file else self.token
        # gRPC would show a value that it refuses.
        if not is_token(token):
            source = f"oxia_token_file ({self.token_file})" if self.token_file else "oxia_token"
            raise NoCredentials(f"{source} does not hold a token; expected one line of ASCII without spaces")
        remember(token)
        return (("authorization", f"Bearer {token}"),)


ANONYMOUS = OxiaAccess()
"""Plain connections without a token."""
