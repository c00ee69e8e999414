"""The page in a browser: every phase of every kind is readable, accessible, and needs nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from page.html import list_document, migration_document, problem_document, report_document
from page.reading import Problem
from tests.support.page.axe import axe_source
from tests.support.page.browser import Browser, find_chromium
from tests.support.page.views import HISTORIES, PHASES, ended, listed, running, running_in

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium; to run this: apt-get install chromium")

NARROW, WIDE = 340, 1300
SECTIONS = {"phases", "wait", "back", "sides", "who", "felt", "timeline", "glass", "proof"}
_NO_NEWS = "const soon = setTimeout; setTimeout = (work, delay, ...more) => delay < 2000 && soon(work, delay, ...more)"
_SHOWN = "[...document.querySelectorAll('main section')].filter(each => each.offsetHeight).map(each => each.id)"
# The rules of WCAG 2.1, levels A and AA, and those that are good practice.
_RUN_AXE = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
    violations.map(({id, nodes}) => `${id}: ${nodes.map(node => node.html).slice(0, 3).join(" | ")}`))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser."""
    with Browser(CHROMIUM) as started:
        # Every two seconds a page asks its process for news. From a file it cannot, and would report that as a fault.
        started.call("Page.addScriptToEvaluateOnNewDocument", source=_NO_NEWS)
        yield started


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the rule engine."""
    try:
        return axe_source()
    except OSError as error:
        pytest.skip(f"the rules of accessibility are not checked: {error}")


def assert_alone(browser: Browser) -> None:
    """Check that the page had no fault, and asked for nothing but itself."""
    assert browser.faults == []
    assert [address for address in browser.requested if not address.startswith(("file:", "data:"))] == []


def show(browser: Browser, folder: Path, document: str, *, width: int = WIDE, dark: bool = False) -> None:
    """Load a document from a file."""
    file = folder / "page.html"
    file.write_text(document)
    browser.show(file.as_uri(), width=width, dark=dark)


@pytest.mark.parametrize(("kind", "phase"), PHASES)
def test_each_phase(browser: Browser, tmp_path: Path, kind: str, phase: str) -> None:
    """The large sentence, the running phase, and each section are there; nothing is refused, cut off or loaded."""
    for view, now in running_in(kind, phase):
        show(browser, tmp_path, migration_document(view, now))
        assert_alone(browser)
        assert phase in browser.evaluate("document.querySelector('.sentence').innerText")
        history = view.status.history if view.status else []
        current = browser.evaluate("document.querySelector('[aria-current=step]')?.innerText ?? ''")
        assert (phase in current) == bool(history and not history[-1].ended)
        assert browser.evaluate("document.querySelectorAll('.line').length") == 1
        assert {*browser.evaluate(_SHOWN)} >= SECTIONS
        for width in (NARROW, WIDE):
            browser.resize(width)
            assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width} pixels"


@pytest.mark.parametrize(("kind", "phase"), PHASES)
def test_accessible(browser: Browser, axe: str, tmp_path: Path, kind: str, phase: str) -> None:
    """No rule of the engine is violated, in light and in dark: names, landmarks, contrast, order."""
    view, now = running_in(kind, phase)[-1]
    show(browser, tmp_path, migration_document(view, now))
    browser.evaluate(axe)
    for dark in (False, True):
        browser.prefer(dark=dark)
        assert browser.evaluate(_RUN_AXE) == []


@pytest.mark.parametrize("name", HISTORIES)
def test_file(browser: Browser, tmp_path: Path, name: str) -> None:
    """The file of a migration that has ended shows how, loads nothing, and holds the report."""
    view, now = ended()[name]
    show(browser, tmp_path, report_document(view, now))
    assert_alone(browser)
    assert browser.evaluate("document.querySelectorAll('button').length") == 0
    saved = browser.evaluate("document.querySelector('#proof a[download]').href")
    report = json.loads(
        browser.evaluate(f"fetchless({json.dumps(saved)})".replace("fetchless", "(at => atob(at.split(',')[1]))"))
    )
    assert (report["outcome"] if view.report else report["workflow_id"]) == (
        view.report.outcome if view.report else view.workflow_id
    )


@pytest.mark.parametrize("name", ["metadata-store-live", "bookie-cluster-rolled-back", "scalable-topic-failed"])
def test_accessible_end(browser: Browser, axe: str, tmp_path: Path, name: str) -> None:
    """The files of migrations that are done, rolled back and failed violate no rule either."""
    view, now = ended()[name]
    show(browser, tmp_path, report_document(view, now))
    browser.evaluate(axe)
    assert browser.evaluate(_RUN_AXE) == []


@pytest.mark.parametrize("name", ["list", "empty list", "problem", "silence"])
def test_accessible_others(browser: Browser, axe: str, tmp_path: Path, name: str) -> None:
    """The list, the page of a problem, and a migration without a worker violate no rule either."""
    view, now = running()["metadata-store/VALIDATION/window"]
    silent = view.model_copy(update={"status": None, "silence": "no worker on the queue q answers (timeout)"})
    documents = {
        "list": list_document([listed(view)], now, "default"),
        "empty list": list_document([], now, "default"),
        "problem": problem_document(Problem("Temporal does not answer.", "check the server"), again=True),
        "silence": migration_document(silent, now),
    }
    show(browser, tmp_path, documents[name])
    browser.evaluate(axe)
    for dark in (False, True):
        browser.prefer(dark=dark)
        assert browser.evaluate(_RUN_AXE) == []


def test_keyboard(browser: Browser, tmp_path: Path) -> None:
    """Tab reaches each button and link in their order, and Enter copies the command of a button."""
    view, now = running()["metadata-store/VALIDATION/window"]
    show(browser, tmp_path, migration_document(view, now))
    browser.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: text => (window.copied = text)}})"
    )
    seen: list[str] = []
    for _ in range(30):
        browser.press("Tab")
        name = browser.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText")
        if name == "Copy the command cleanup":
            browser.press("Enter")
        seen.append(name)
    for name in ("Skip to the state", "Copy the command cleanup", "Copy the command proceed", "All migrations"):
        assert name in seen
    assert browser.evaluate("copied") == "pulsar-migrate cleanup metadata-store/cluster-1 --reason 'WHY'"


def test_print(browser: Browser, tmp_path: Path) -> None:
    """Paper has no buttons."""
    view, now = running()["metadata-store/VALIDATION/window"]
    show(browser, tmp_path, migration_document(view, now))
    browser.prefer(media="print")
    assert browser.evaluate("[...document.querySelectorAll('button')].every(each => !each.offsetHeight)")
