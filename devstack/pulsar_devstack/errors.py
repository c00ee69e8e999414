"""Errors of the dev stack; each message says cause and remedy.

DevStackError
├── ToolMissing        a program that must be on the machine is missing or too old
├── ProvisionFailed    a build tool or a package manager's client failed, or took too long
├── ChecksumMismatch   a file from a registry is not the one that the lock names
├── ServerFailed       a server ended, or did not become ready in time; carries the end of its log
├── StackConflict      what is asked for does not fit what the stack's folder holds
└── NotInStack         the stack has no server of this name or kind
"""

from __future__ import annotations


class DevStackError(Exception):
    """Base of all errors of the dev stack."""


class ToolMissing(DevStackError):
    """A program that must be on the machine is missing or too old."""


class ProvisionFailed(DevStackError):
    """A build tool or a package manager's client failed, or took too long."""


class ChecksumMismatch(DevStackError):
    """A file from a registry is not the one that the lock names."""


class StackConflict(DevStackError):
    """The request does not fit the stack in the folder."""


class NotInStack(DevStackError):
    """The stack has no server of this name or kind."""


class ServerFailed(DevStackError):
    """A server ended, or did not become ready in time.

    Attributes:
        name: the server.
        exit_code: its exit code, negative for a signal; None if it still ran or the code is unknown.
        tail: the last lines of its log.
    """

    def __init__(self, name: str, cause: str, exit_code: int | None, tail: list[str]) -> None:
        self.name, self.exit_code, self.tail = name, exit_code, tail
        lines = "\n".join(f"  | {line}" for line in tail) or "  | (empty)"
        super().__init__(f"{name} {cause}; the end of its log:\n{lines}")
