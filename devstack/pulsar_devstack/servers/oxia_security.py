"""Oxia with TLS and tokens: files and options of its servers."""

from __future__ import annotations

import json

from pulsar_devstack.servers.spec import TOKEN_AUDIENCE, TOKEN_ISSUER, OxiaSecurity

# In the folder of each server, so that containers have them too.
_AUTHORITIES, _SERVER, _TOKEN_KEYS = "tls/authorities.pem", "tls/server.pem", "tls/token-keys.pem"


def server_options(security: OxiaSecurity | None) -> list[str]:
    """Return the options of a server, which must run in the folder of its files."""
    if security is None:
        return []
    options = [f"--tls-cert-file={_SERVER}", f"--tls-key-file={_SERVER}", f"--tls-trusted-ca-file={_AUTHORITIES}"]
    if security.client_certificates:
        options.append("--tls-client-auth=true")
    if security.token_keys:
        issuer = {"allowedAudiences": TOKEN_AUDIENCE, "staticKeyFile": _TOKEN_KEYS}
        options.append("--auth-provider-name=oidc")
        options.append(f"--auth-provider-params={json.dumps({'issuers': {TOKEN_ISSUER: issuer}})}")
    return options


def server_files(security: OxiaSecurity | None) -> dict[str, str]:
    """Return the files of a server, path to text."""
    if security is None:
        return {}
    files = {_AUTHORITIES: security.authorities.read_text(), _SERVER: security.server.read_text()}
    if security.token_keys:
        files[_TOKEN_KEYS] = security.token_keys.read_text()
    return files
