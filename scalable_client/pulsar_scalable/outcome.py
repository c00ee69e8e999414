"""Wait for the outcome of a message that is sent with a callback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from pulsar_scalable.errors import ScalableError

IdT = TypeVar("IdT")


def wait_for_outcome(send: Callable[[Callable[[ScalableError | None, IdT | None], None]], None], topic: str) -> IdT:
    """Send a message, wait until it is stored, and return its id.

    Args:
        send: sends the message with the callback that it receives.
        topic: name of the topic, for errors.

    Raises:
        ScalableError: the message is not stored, or that is unknown.
    """
    done = threading.Event()
    outcomes: list[tuple[ScalableError | None, IdT | None]] = []

    def on_outcome(error: ScalableError | None, message_id: IdT | None) -> None:
        outcomes.append((error, message_id))
        done.set()

    send(on_outcome)
    done.wait()
    error, message_id = outcomes[0]
    if error is not None or message_id is None:
        raise error or ScalableError(f"{topic}: delivery outcome unknown")
    return message_id
