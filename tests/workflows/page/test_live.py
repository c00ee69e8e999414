"""The live page of a running migration, in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from gateway.process import build_server, listen, url_of
from models.lifecycle.verbs import Verb, VerbRequest
from page import app
from page.access import Viewers
from page.app import build_app
from page.process import LONGEST_ANSWER
from page.settings import PREFIX, PageSettings
from temporal.caller import NamesSender
from temporal.converter import DATA_CONVERTER
from tests.support.page.browser import Browser, find_chromium
from tests.workflows.lifecycle.harness import Harness
from views.migration import View
from workflows.lifecycle import hold

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium; to run this: apt-get install chromium")
LIMIT = 60.0


@pytest.fixture(autouse=True)
def _rare_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round of a hold begins while a test steers: the test server cannot cancel a timer that ends at that moment."""
    monkeypatch.setattr(hold, "_SHORTEST_ROUND", timedelta(hours=1))


@contextlib.asynccontextmanager
async def serving(client: Client, port: int = 0) -> AsyncGenerator[str]:
    """Serve the page; its address."""
    settings = PageSettings(port=port)
    server = build_server(build_app(client, settings, Viewers(None)), settings, LONGEST_ANSWER)
    listener = listen(settings, PREFIX)
    running = asyncio.create_task(server.serve([listener]))
    try:
        yield url_of(listener, settings)
    finally:
        server.should_exit = True
        await running


async def steer(client: Client, workflow_id: str, verb: Verb) -> None:
    """Give a verb."""
    # The SDK leaves an overload of this method without types.
    handle: Any = client.get_workflow_handle(workflow_id)
    await handle.execute_update("steer", VerbRequest(verb=verb))


async def until(browser: Browser, condition: str) -> None:
    """Wait until an expression is true in the page."""
    polled = f"""new Promise((done, failed) => {{
        const end = Date.now() + {1000 * LIMIT};
        const check = () => ({condition}) ? done() : Date.now() > end
            ? failed(new Error(document.body.innerText)) : setTimeout(check, 50);
        check();
    }})"""
    await asyncio.to_thread(browser.evaluate, polled)


def contains(selector: str, text: str) -> str:
    """Return an expression: an element has a text."""
    return f"document.querySelector({json.dumps(selector)}).innerText.includes({json.dumps(text)})"


async def test_follows_a_migration(stage: Harness) -> None:
    """The page changes with the migration, without a reload; it says what asks the operator, and keeps what is open."""
    run = await stage.start(hold_before_cutover=True)
    await run.until(lambda status: Verb.PROCEED in status.legal_verbs)
    async with serving(stage.client) as address:
        with Browser(CHROMIUM) as browser:
            await asyncio.to_thread(browser.show, f"{address}/migration/{run.handle.id}")
            await until(browser, contains(".sentence", "CATCH_UP waits for you"))
            await until(browser, contains("#wait", f"pulsar-migrate proceed {run.handle.id}"))
            browser.evaluate("document.querySelector('#figures').open = true; window.loaded = 'once'")
            await run.signal(Verb.PROCEED)
            await until(browser, contains(".sentence", "VALIDATION"))
            await until(browser, contains("#spoken", "VALIDATION"))
            await until(browser, contains("#back", "Only by a migration back."))
            await until(browser, "document.title.includes('waits')")
            assert browser.evaluate("window.loaded") == "once"
            assert browser.evaluate("document.querySelector('#figures').open")
            await run.signal(Verb.PROCEED)
            await until(browser, contains(".sentence", "Done."))
            await until(browser, contains("#proof", "SHA-256"))
            assert browser.faults == []
            assert {each.split("/")[2] for each in browser.requested if each.startswith("http")} == {
                address.removeprefix("http://")
            }


async def test_page_that_ended(stage: Harness) -> None:
    """A browser whose page does not answer says so with the cure, and continues when it is back."""
    run = await stage.start(hold_before_cutover=True)
    await run.until(lambda status: Verb.PROCEED in status.legal_verbs)
    with Browser(CHROMIUM) as browser:
        async with serving(stage.client) as address:
            await asyncio.to_thread(browser.show, f"{address}/migration/{run.handle.id}")
            await until(browser, contains(".sentence", "waits for you"))
        await until(browser, "!document.querySelector('#problem').hidden")
        await until(browser, contains("#problem", "start it again with pulsar-migrate page"))
        assert browser.evaluate("document.querySelector('.sentence').innerText.includes('waits for you')")
        async with serving(stage.client, int(address.rpartition(":")[2])):
            await until(browser, "document.querySelector('#problem').hidden")
    await run.signal(Verb.ROLLBACK)
    await run.ended()


async def test_page_before_its_migration(stage: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that Temporal does not answer shows the migration as soon as Temporal does."""
    run = await stage.start(hold_before_cutover=True)
    await run.until(lambda status: Verb.PROCEED in status.legal_verbs)
    read, silent = app.read_view, [True]

    async def read_view(*arguments: Any, **options: Any) -> View:
        if silent[0]:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        return await read(*arguments, **options)

    monkeypatch.setattr(app, "read_view", read_view)
    async with serving(stage.client) as address:
        with Browser(CHROMIUM) as browser:
            await asyncio.to_thread(browser.show, f"{address}/migration/{run.handle.id}")
            await until(browser, contains("h1", "Temporal does not answer (connection refused)"))
            silent[0] = False
            await asyncio.to_thread(browser.wait_for_load)
            await until(browser, contains(".sentence", "CATCH_UP waits for you"))
    await run.signal(Verb.ROLLBACK)
    await run.ended()


async def test_two_persons(stage: Harness) -> None:
    """A step that waits for another person is named with its requester, and `approve` comes first."""
    run = await stage.start(hold_before_cutover=True, two_persons=True)
    await run.until(lambda status: Verb.PROCEED in status.legal_verbs)
    target = stage.client.service_client.config.target_host
    ana = await Client.connect(target, data_converter=DATA_CONVERTER, interceptors=[NamesSender("ana@one")])
    await steer(ana, run.handle.id, Verb.PROCEED)
    async with serving(stage.client) as address:
        with Browser(CHROMIUM) as browser:
            await asyncio.to_thread(browser.show, f"{address}/migration/{run.handle.id}")
            await until(browser, contains(".sentence", "ana@one asks for proceed"))
            await until(browser, contains(".commands li", "pulsar-migrate approve"))
            await until(browser, contains(".commands li", "--asked '20"))
    await run.signal(Verb.ROLLBACK)
    await run.ended()
