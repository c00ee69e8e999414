"""ZooKeeper with TLS and SASL: lines, files and Java options of its servers and of the stack's own clients."""

from __future__ import annotations

from pulsar_devstack.servers.spec import Settings, ZooKeeperSecurity

# In the folder of each server and set-up step, so that containers have them too.
_AUTHORITIES, _SERVER, _CLIENT = "tls/authorities.pem", "tls/server.pem", "tls/client.pem"
_JAAS = "jaas.conf"
_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
_FACTORY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty"
_SASL_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"


def server_lines(security: ZooKeeperSecurity | None, plain: Settings) -> Settings:
    """Return the lines of `zoo.cfg` for a server whose lines without security are `plain`."""
    if security is None:
        return plain
    lines = {name: line for name, line in plain.items() if not name.startswith("clientPort")}
    lines |= {
        "secureClientPort": plain["clientPort"],
        "secureClientPortAddress": plain["clientPortAddress"],
        "serverCnxnFactory": _FACTORY,
        **_stores(_SERVER),
        "ssl.clientAuth": "need",
    }
    if security.users:
        lines |= {"authProvider.sasl": _SASL_PROVIDER}
    if security.login_required:
        lines |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
    return lines


def server_options(security: ZooKeeperSecurity | None) -> list[str]:
    """Return the Java options of a server."""
    return _login_options() if security and security.users else []


def server_files(security: ZooKeeperSecurity | None) -> dict[str, str]:
    """Return the files of a server, path to text."""
    if security is None:
        return {}
    users = " ".join(f'user_{name}="{password}"' for name, password in security.users.items())
    return {
        _AUTHORITIES: security.authorities.read_text(),
        _SERVER: security.server.read_text(),
        _JAAS: f"Server {{ {_LOGIN} required {users}; }};\n",
    }


def client_options(security: ZooKeeperSecurity | None) -> list[str]:
    """Return the Java options of a program that is a client of ZooKeeper; it must run in the folder of its files."""
    if security is None:
        return []
    properties = {"client.secure": "true", "clientCnxnSocket": _SOCKET, **_stores(_CLIENT)}
    options = [f"-Dzookeeper.{name}={value}" for name, value in properties.items()]
    return [*options, *(_login_options() if security.users else [])]


def client_files(security: ZooKeeperSecurity | None) -> dict[str, str]:
    """Return the files of such a program, path to text."""
    if security is None:
        return {}
    files = {_AUTHORITIES: security.authorities.read_text(), _CLIENT: security.client.read_text()}
    for name, password in list(security.users.items())[:1]:
        files[_JAAS] = f'Client {{ {_LOGIN} required username="{name}" password="{password}"; }};\n'
    return files


def _stores(own: str) -> Settings:
    return {
        "ssl.keyStore.location": own,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": _AUTHORITIES,
        "ssl.trustStore.type": "PEM",
    }


def _login_options() -> list[str]:
    # ZooKeeper 3.9 has its FIPS mode on by default, and then neither its servers nor its clients do DIGEST-MD5.
    return [f"-Djava.security.auth.login.config={_JAAS}", "-Dzookeeper.fips-mode=false"]
