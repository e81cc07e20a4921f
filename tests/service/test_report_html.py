"""Written reports: complete, self-contained, and deaf to what hostile text asks for."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.gates.service import GateService
from app.reports.html import render_html
from app.reports.markdown import render_markdown
from app.reports.paths import choose_paths
from app.reports.service import ReportService
from app.settings import StoreSettings
from app.store.database import Database
from layers.model import EvalDataset, EvalExample, EvalPrediction
from tests.reports import HOSTILE, PROFILE, a_view
from tests.runs import Scripted, ended, prediction, request, run_service

VOID = {"meta", "img", "br", "hr", "input", "link", "rect", "line", "circle", "polyline"}
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=40)
PIECES = st.sampled_from(
    [
        "<script>",
        "</style>",
        "</pre>",
        "</title>",
        "<!--",
        "-->",
        "]]>",
        "&lt;",
        '"',
        "'",
        "`",
        "{{",
        "{%",
        "\u202e",
        "a",
    ]
)


class Page(HTMLParser):
    """Reads a page as a browser would, and keeps what tests ask about."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def skeleton(html: str) -> list[tuple[str, tuple[str, ...]]]:
    """The page's elements and the names of their attributes, without any text."""
    return [(tag, tuple(attributes)) for tag, attributes in Page(html).tags]


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_html(a_view()))


# --- HTML -------------------------------------------------------------------------------------------------------------


def test_the_page_tells_everything_there_is(page: Page) -> None:
    for said in (
        "85.0 %",
        "68 of n = 80 scored answers",
        "missing, not asked",
        "n predicted",
        "neither has an interval, because only sums by bin are kept",
        "15 had every answer scored",
        "75.6–91.2 %",
        "Precision, recall and F1 of each label",
        "Rows: the label that was expected",
        "Labels collapsed to two",
        "Brier score",
        "/input/currency",
        "asked 3 times each",
        "pass^3",
        "Comparison with the baseline",
        "Difference on each label axis",
        "Labels collapsed to two: ",
        "Repeated ids: 1",
        "predicted low",
        "confidence 0.93",
        "timeout: 4",
        "sha256:" + "ab" * 32,
        "driver gemini",
        "code version",
    ):
        assert re.sub(r"\s+", " ", said) in re.sub(r"\s+", " ", page.text), said


def test_every_element_is_closed_in_order(page: Page) -> None:
    assert page.open == []


def test_the_page_asks_nobody_for_anything(page: Page) -> None:
    """No script, no image, no frame, no link but to its own sections: it works from a file, without a network."""
    assert not {"script", "img", "link", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"href", "src", "xlink:href", "action"}:
                assert (value or "").startswith("#")
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert (policy or "").startswith("default-src 'none'")
    assert "url(" not in render_html(a_view())


def test_the_page_can_be_read_without_seeing_it(page: Page) -> None:
    """A language, one first heading, no level left out, captions and scopes on tables, names on plots and regions."""
    tags = page.tags
    assert ("html", {"lang": "en"}) in tags
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.count("caption") == page.count("table")
    assert all(attributes.get("scope") in {"row", "col"} for tag, attributes in tags if tag == "th")
    assert all(attributes.get("aria-label") for _, attributes in tags if attributes.get("role") == "region")
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or attributes.get("role") == "img"
            assert set((attributes.get("aria-labelledby") or "").split()) <= set(ids)
        if tag == "a":
            assert (attributes["href"] or "")[1:] in ids


def test_hostile_text_adds_no_element_and_no_attribute() -> None:
    """Wherever text of others can stand, it is shown as text."""
    view = a_view(HOSTILE)
    page = Page(render_html(view))
    assert skeleton(render_html(view)) == skeleton(render_html(a_view("x" * 9)))
    assert "<script>alert(1)</script>" in page.text
    assert "{{7*7}}" in page.text
    assert "\u202e" not in page.text
    assert page.open == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(TEXTS, st.lists(PIECES, min_size=1, max_size=8).map("".join)))
def test_no_text_changes_the_page(text: str) -> None:
    page = render_html(a_view(text, comparison=False))
    assert Page(page).open == []
    assert skeleton(page) == skeleton(render_html(a_view("harmless", comparison=False)))
    page.encode()


def test_a_run_without_anything_scored_has_a_page() -> None:
    import dataclasses

    from app.runs.report import derive_report
    from app.runs.tally import Tally

    view = a_view(comparison=False)
    empty = derive_report(Tally(0, {}, {}), PROFILE, binary=False)
    view = dataclasses.replace(view, report=empty, worst=(), failures=(), n_wrong=0)
    assert "Accuracy is undefined" in Page(render_html(view)).text
    assert "**Accuracy is undefined**" in render_markdown(view)


# --- Markdown ---------------------------------------------------------------------------------------------------------


def tables(markdown: str) -> list[list[str]]:
    """Runs of lines that are tables."""
    found: list[list[str]] = [[]]
    for line in markdown.split("\n"):
        if line.startswith("| ") or line.startswith("|---"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


@pytest.mark.parametrize("text", [None, HOSTILE, "|", "`", "``|`", "\\|", "\n\n# x", "</details>"])
def test_every_table_row_has_as_many_cells_as_its_head(text: str | None) -> None:
    for table in tables(render_markdown(a_view(text))):
        assert len({cells(line) for line in table}) == 1, table


def test_hostile_text_stays_in_code() -> None:
    """Outside code spans and blocks there is no text of others: no mention, no link, no markup."""
    markdown = render_markdown(a_view(HOSTILE))
    without_blocks = re.sub(r"^(`{3,})json\n.*?\n\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", without_blocks)
    for bad in ("script", "alert", "onerror", "@you", "http://e", "7*7"):
        assert bad not in outside
    assert markdown.count("<details>") == markdown.count("\n</details>")


def test_every_agreement_stands_with_its_interval_on_the_page_and_in_markdown() -> None:
    """Matthews and kappa lie in -1..1, so their ends are figures and no percentages."""
    view = a_view()
    page, markdown = render_html(view), render_markdown(view)
    for name in ("matthews", "kappa"):
        ends = getattr(view.report.intervals, name)
        said = f"{ends.low:.3f} to {ends.high:.3f}"
        assert said in page
        assert said in markdown
    once = view.report.repeats.pass_any_interval
    assert f"{100 * once.low:.1f}–{100 * once.high:.1f}" in page


def test_markdown_tells_the_same_figures() -> None:
    markdown = render_markdown(a_view())
    for said in (
        "**Accuracy 85.0 %**",
        "75.6–91.2 %",
        "## Calibration",
        "## Comparison",
        "## Provenance",
        "`timeout`",
        "pass^3",
        "| axis |",
        "repeated ids: `twice`",
    ):
        assert said in markdown


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_an_interval_that_could_not_be_made_is_a_dash() -> None:
    """Too few examples carry `critical` for an interval of its F1; the reason is told."""
    view = a_view(comparison=False)
    row = next(one for one in view.report.per_label if one.label == "critical")
    shown = f"{100 * row.f1:.1f} %"
    assert f"| {shown} (–) |" in render_markdown(view)
    assert "f1_interval" in render_markdown(view)
    assert f'{shown}<span class="under">–</span>' in render_html(view)


def test_slices_are_chosen_along_fields_with_few_values() -> None:
    """Not along identifiers, amounts, constants, or what only few examples have; and not twice along the same thing."""
    examples = [
        {
            "input": {
                "id": f"t{n}",
                "currency": "EUR" if n % 2 else "USD",
                "twin": n % 2,
                "one": "x",
                "amount": n * 1.5,
            },
            "metadata": {"deep": {"er": {"day": n % 3}}, **({"rare": "a"} if n < 3 else {})},
        }
        for n in range(30)
    ]
    assert choose_paths(examples) == ("/input/currency", "/metadata/deep/er/day")
    assert choose_paths([]) == ()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


async def say(example: EvalExample) -> EvalPrediction:
    if "fails" in example.input:
        raise RuntimeError("broken")
    return prediction(str(example.input["said"]), id=example.id, confidence=float(example.input["sure"]))


def dataset(*rows: tuple[str, str, float], fails: int = 0) -> EvalDataset:
    examples = [
        EvalExample(id=f"e{n}", expected_label=expected, input={"said": said, "sure": sure})
        for n, (expected, said, sure) in enumerate(rows)
    ]
    broken = [EvalExample(id=f"f{n}", expected_label="low", input={"fails": True}) for n in range(fails)]
    return EvalDataset(examples=tuple(examples + broken))


@pytest.mark.anyio
async def test_the_gravest_errors_come_first(api, database: Database) -> None:
    """Distance from the expected label in the profile's order, then confidence, then the dataset's order."""
    rows = (
        ("low", "low", 1.0),
        ("low", "medium", 0.2),
        ("high", "medium", 0.9),
        ("critical", "low", 0.1),
        ("low", "high", 0.5),
        ("low", "medium", 0.2),
    )
    async with run_service(database, Scripted(say).as_system(PROFILE)) as runs:
        run = await ended(runs, (await runs.submit(request(), dataset(*rows, fails=2))).run_id)
        reports = ReportService(database, runs, GateService(database), version="1")
        view = await reports.view(run.run_id, baseline=run.run_id)
        assert [case.record.example_id for case in view.worst] == ["e3", "e4", "e2", "e1", "e5"]
        assert [(cause.kind, cause.count, len(cause.cases)) for cause in view.failures] == [("internal", 2, 2)]
        assert view.comparison is not None
        assert view.n_wrong == 5
        async with api(runs=runs, reports=reports) as http:
            for accept, kind, said in (
                ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8", "<!DOCTYPE html>"),
                ("text/markdown", "text/markdown; charset=utf-8", "# Report"),
                ("*/*", "application/json", '"schema_version"'),
            ):
                params = {"baseline": run.run_id, "slice": "/input/said"}
                response = await http.get(run.links.report, headers={"accept": accept}, params=params)
                assert (response.status_code, response.headers["content-type"]) == (200, kind)
                assert response.headers["vary"] == "Accept"
                assert said in response.text
            for params, status in (({"baseline": "nothing"}, 404), ({"baseline": "a b"}, 400)):
                response = await http.get(run.links.report, headers={"accept": "text/html"}, params=params)
                assert response.status_code == status
            assert (await http.get(run.links.report, headers={"accept": "image/png"})).status_code == 406
            unknown = "/runs/01900000-0000-7000-8000-000000000000/report"
            assert (await http.get(unknown, headers={"accept": "text/html"})).status_code == 404
