"""Notebooks: compact tables, well formed and escaped, in the colours of the page."""

import contextlib
import io
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestall import NestedRehearsal, Problem, html
from forestall.decisions import Decision
from markup import Page
from worlds import DOSING, LENDING, contexts_of, lending

CHANCES = st.floats(0.0, 1.0)
HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def told():
    policy = NestedRehearsal().fit(LENDING, lending(120))
    return policy.recommend(contexts_of(LENDING, lending(120), slice(0, 12)))


def decision(verdict="act", reason="because", **changes):
    given = dict(probability=0.8, lower=0.7, upper=0.9, no_action=0.4)
    given |= dict(actions={"dose": 1.23456}, support=1.0, extrapolates=False)
    return Decision(**given | changes, verdict=verdict, reason=reason)


def width_of(bar):
    return float(re.search(r'width="([\d.]+)"', bar).group(1))


def test_a_problem_shows_its_roles_its_intervals_and_its_region():
    text = Page(LENDING._repr_html_()).text
    for part in ("rate in [0, 1]", "repaid >= 0.6 and roi >= 0.3", "score, debt"):
        assert part in text
    assert "covariates stability" in text
    assert "outcomes repaid, roi" in text


def test_a_problem_says_in_html_what_it_prints():
    page = Page(DOSING._repr_html_()).text
    for line in str(DOSING).splitlines():
        assert " ".join(line.split()) in page


def test_decisions_show_ten_rows_and_count_the_rest(told):
    page = Page(told._repr_html_())
    assert page.tags.count("tr") == 11
    assert "and 2 more; see to_frame()" in page.text
    assert repr(told) in page.text


def test_every_number_of_a_row_is_that_of_its_decision(told):
    rows = told._repr_html_().split("<tr>")[2:]
    for one, row in zip(told, rows, strict=False):
        text = Page(row.partition("</tr>")[0]).text
        assert f"{one.actions['rate']:.4g} " in text
        assert one.reason in text
        assert f" {one.verdict} " in text
        for p in (one.no_action, one.probability):
            shown = "> 99%" if p > 0.99 else "< 1%" if p < 0.01 else f"{p:.0%}"
            assert f" {shown} " in text


def test_a_context_that_cannot_be_read_shows_dashes_and_no_bar(told):
    policy = NestedRehearsal().fit(LENDING, lending(100))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odd = policy.recommend({"score": [np.nan], "debt": [0.5]})
    page = Page(odd._repr_html_())
    assert "0 – – – abstain Expected a finite number for 'score'" in page.text
    assert "svg" not in page.tags


def test_no_decisions_are_a_table_without_rows(told):
    policy = NestedRehearsal().fit(LENDING, lending(100))
    none = policy.recommend({"score": [], "debt": []})
    assert Page(none._repr_html_()).tags.count("tr") == 1


@pytest.mark.parametrize("verdict", ["act", "leave", "abstain"])
def test_a_decision_is_its_sentence_behind_its_verdict(verdict):
    one = decision(verdict)
    assert Page(one._repr_html_()).text.startswith(f"{verdict} {one}")


@given(before=CHANCES, after=CHANCES)
def test_bars_are_as_long_as_the_chances(before, after):
    drawn = re.findall(r"<rect[^>]*>", html.bars(before, after, np.nan, np.nan))
    _, first, second = map(width_of, drawn)
    assert first == pytest.approx(before * html.WIDTH, abs=0.06)
    assert second == pytest.approx(after * html.WIDTH, abs=0.06)


@given(ends=st.tuples(CHANCES, CHANCES).map(sorted))
def test_the_whisker_spans_the_interval_inside_the_picture(ends):
    drawn = html.bars(0.5, 0.5, *ends)
    path = re.search(r'd="M([\d.]+) .*H([\d.]+)M', drawn)
    left, right = map(float, path.groups())
    assert left == pytest.approx(max(1, ends[0] * html.WIDTH), abs=0.06)
    assert right == pytest.approx(min(html.WIDTH - 1, ends[1] * html.WIDTH), abs=0.06)


def test_what_is_not_advised_is_drawn_pale():
    assert "fill-opacity:1" in html.bars(0.2, 0.4, 0.3, 0.5, advised=True)
    assert "fill-opacity:1" not in html.bars(0.2, 0.4, 0.3, 0.5, advised=False)


def test_no_interval_draws_no_whisker():
    assert "<path" not in html.bars(0.2, 0.4, np.nan, np.nan)
    assert "interval" not in html.bars(0.2, 0.4, np.nan, np.nan)


@given(st.text())
def test_whatever_a_name_is_it_stays_text(name):
    page = Page(html.pairs("title", {name: name}) + html.sentence("act", name, ""))
    assert set(page.tags) <= {"div", "table", "tr", "th", "td", "span", "br"}


def test_hostile_names_and_reasons_are_escaped():
    problem = Problem(
        context=[HOSTILE, 'a"b'],
        actions={"<b>&": (0, 1)},
        outcomes=["y"],
        desired=["y >= 0"],
    )
    shown = problem._repr_html_() + decision("abstain", HOSTILE)._repr_html_()
    shown += decision(actions={HOSTILE: 1.0})._repr_html_()
    assert not {"script", "b"} & set(Page(shown).tags)
    assert HOSTILE in Page(shown).text


def test_colours_come_from_the_page_so_that_dark_notebooks_are_legible(told):
    shown = told._repr_html_() + told[0]._repr_html_() + LENDING._repr_html_()
    assert "currentColor" in shown
    assert "color:inherit" in shown
    assert "background:#fff" not in shown
    assert "color:#000" not in shown


def test_importing_forestall_does_not_load_html():
    code = "import sys, forestall; forestall.Problem, forestall.Decisions;"
    code += "assert not {'forestall.html', 'forestall.report'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::forestall.ForestallWarning")
def test_the_page_on_assumptions_runs_and_prints_what_it_shows(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names, printed = {}, None
    for kind, block in BLOCK.findall((DOCS / "assumptions.md").read_text("utf-8")):
        if kind == "text":
            assert printed == block
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(block, names)
        printed = out.getvalue()
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_every_link_of_the_page_on_assumptions_leads_somewhere():
    text = (DOCS / "assumptions.md").read_text("utf-8")
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert targets
    assert all((DOCS / target).exists() for target in targets)
