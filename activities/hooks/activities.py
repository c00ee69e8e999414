"""Activities of hooks, the same for all kinds of migrations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from structlog.contextvars import bound_contextvars
from temporalio import activity

from activities.hooks.cloud_event import encoded
from activities.lifecycle.context import ActivityContext
from activities.lifecycle.leashed_command import CommandFailed, run_leashed
from activities.lifecycle.runner import in_thread
from clients.hook_endpoint import HookAnswer, HookFailed, post_event
from models.child_environment import child_environment
from models.hooks import Hook
from models.lifecycle.hook_events import (
    ASK,
    CHECK,
    DELIVER,
    Checked,
    Delivered,
    Delivery,
    EventSource,
    HookCheck,
    HookEvent,
    Question,
    Veto,
    Vetoes,
)
from models.text import shown

_DELIVERY_SECONDS = 60.0
"""Time after which an activity starts no further delivery."""

_REFUSALS = frozenset((403, 409))
_ASK_AGAIN = 60.0
_SOONEST, _LATEST = 5.0, 3600.0


class HookActivities:
    """Activities that call the hooks of a worker's settings.

    Args:
        hooks: by name.
        environment: names of further variables that commands inherit.
    """

    def __init__(self, hooks: Mapping[str, Hook], environment: Iterable[str] = ()) -> None:
        self._hooks = hooks
        self._environment = tuple(environment)

    @property
    def all(self) -> list[Callable[..., Any]]:
        """The activities, as a worker registers them."""
        return [self.check, self.deliver, self.ask]

    @activity.defn(name=CHECK)
    async def check(self, check: HookCheck) -> Checked:
        """Return what is wrong with the names of hooks."""
        return Checked(problems=tuple(self._unknown(name) for name in check.hooks if name not in self._hooks))

    @activity.defn(name=DELIVER)
    async def deliver(self, delivery: Delivery) -> Delivered:
        """Deliver events to one hook, in their order, up to the first that it does not take."""
        hook = self._hooks.get(delivery.hook)
        if hook is None:
            return Delivered(error=self._unknown(delivery.hook))
        end, taken = asyncio.get_running_loop().time() + _DELIVERY_SECONDS, 0
        with bound_contextvars(migration=delivery.source.workflow_id, run=delivery.source.run_id):
            for event in delivery.events:
                if hook.wants(event.type) and (error := await self._send(delivery.hook, hook, delivery.source, event)):
                    return Delivered(taken=taken, error=error)
                taken = event.number
                if asyncio.get_running_loop().time() > end:
                    break
        return Delivered(taken=taken)

    @activity.defn(name=ASK)
    async def ask(self, question: Question) -> Vetoes:
        """Ask the hooks with a veto; one that does not answer has a veto."""
        hooks = {name: self._hooks.get(name) for name in question.hooks}
        asked = {name: hook for name, hook in hooks.items() if hook is None or hook.veto}
        with bound_contextvars(migration=question.source.workflow_id, run=question.source.run_id):
            answers = await asyncio.gather(*(self._veto(name, hook, question) for name, hook in asked.items()))
        return Vetoes(asked=tuple(asked), vetoes=tuple(veto for veto in answers if veto is not None))

    # Inside -----------------------------------------------------------------------------------------------------------

    def _unknown(self, name: str) -> str:
        available = ", ".join(sorted(self._hooks)) or "none"
        return (
            f"the worker's settings have no hook called {name!r}; they have {available}. Cure: set "
            f"PULSAR_MIGRATE_HOOKS__{name.upper()}__URL or __COMMAND, and restart the worker, or correct `hooks`"
        )

    async def _send(self, name: str, hook: Hook, source: EventSource, event: HookEvent) -> str:
        """Send an event; return why the hook did not take it, or an empty text."""
        try:
            answer = await self._call(name, hook, source, event)
        except (HookFailed, CommandFailed) as error:
            return str(error)
        return "" if answer is None or answer.accepted else _refusal(answer)

    async def _veto(self, name: str, hook: Hook | None, question: Question) -> Veto | None:
        if hook is None:
            return Veto(hook=name, why=self._unknown(name))
        try:
            answer = await self._call(name, hook, question.source, question.event)
        except CommandFailed as error:
            reason = shown(error.output) if error.exit_code is not None else ""
            return Veto(hook=name, why=reason or str(error))
        except HookFailed as error:
            return Veto(hook=name, why=str(error))
        if answer is None or answer.accepted:
            return None
        ask_again = _ASK_AGAIN if answer.retry_after is None else min(max(answer.retry_after, _SOONEST), _LATEST)
        why = answer.reason if answer.status in _REFUSALS and answer.reason else _refusal(answer)
        return Veto(hook=name, why=why, ask_again=ask_again)

    async def _call(self, name: str, hook: Hook, source: EventSource, event: HookEvent) -> HookAnswer | None:
        """Give an event to a hook; return the answer of an endpoint, and None for a command that ended with 0.

        Raises:
            HookFailed: the endpoint did not answer.
            CommandFailed: the command did not end with 0.
        """
        body = encoded(source, event)
        if hook.url:
            return await post_event(name, hook, event.id, body)
        await self._run(hook, body)
        return None

    async def _run(self, hook: Hook, body: bytes) -> None:
        context = ActivityContext()
        environment = child_environment({}, further=self._environment)
        seconds = hook.timeout.total_seconds()
        await in_thread(
            context,
            lambda: run_leashed(hook.command, environment, seconds, context, lambda: None, given=body),
            activity.heartbeat,
        )


def _refusal(answer: HookAnswer) -> str:
    redirects = ", and redirects are not followed" if 300 <= answer.status < 400 else ""
    return f"answered {answer.status}{redirects}"
