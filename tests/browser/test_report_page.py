"""The HTML report in headless Chromium: silent, still, narrow enough, readable in both themes and without a mouse."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.reports.html import render_html
from tests.reports import HOSTILE, a_view

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the dependency group `browser`")
axe_sync = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the dependency group `browser`")

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium")]

LONG = "a-very-long-label-without-any-place-to-break-it-" * 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    made = {}
    for name, text in (("plain", None), ("hostile", HOSTILE), ("long", LONG)):
        made[name] = folder / f"{name}.html"
        made[name].write_text(render_html(a_view(text)), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", ["plain", "hostile", "long"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_is_silent_self_contained_and_fits(
    browser: Any, files: dict[str, Path], name: str, scheme: str, width: int
) -> None:
    """No message on the console, no request but for the file, no sideways scrolling, nothing for axe to say."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(files[name].as_uri())
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    wide, inner = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert messages == []
    assert requests == [files[name].as_uri()]
    assert wide <= inner
    found = axe_sync.Axe().run(page)
    context.close()
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found.response["violations"]] == []


def test_the_themes_differ(browser: Any, files: dict[str, Path]) -> None:
    """Dark mode is asked for by the reader's system, not by a switch."""
    colours = set()
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(files["plain"].as_uri())
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        context.close()
    assert colours == {"rgb(255, 255, 255)", "rgb(13, 17, 23)"}


def test_everything_is_reached_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    """The first stop skips to the figures; a folded case opens with Enter; every stop shows that it has the focus."""
    page = browser.new_context().new_page()
    page.goto(files["plain"].as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    opened = False
    for _ in range(200):
        page.keyboard.press("Tab")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        if page.evaluate("document.activeElement === document.body"):
            break
        assert style != "none"
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            page.keyboard.press("Enter")
            opened = page.evaluate("document.activeElement.parentElement.open")
            break
    assert opened


def test_case_details_are_folded_at_first(browser: Any, files: dict[str, Path]) -> None:
    page = browser.new_context().new_page()
    page.goto(files["plain"].as_uri())
    assert page.locator("details").count() > 0
    assert page.locator("details[open]").count() == 0
    assert page.locator("pre").first.is_visible() is False
