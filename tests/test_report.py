"""The report: one page that stands by itself, with the numbers of the decisions."""

import base64
import copy
import hashlib
import html as stdlib_html
import re
import sys
import warnings
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extras import chromium_or_skip
from forestall import (
    ConditionalRehearsal,
    DataError,
    MissingExtraError,
    NestedRehearsal,
    Problem,
    Search,
    SpecError,
    StagedRehearsal,
    baselines,
    cli,
    report,
)
from forestall.decisions import Decision
from forestall.report import facts, figures, words
from markup import Page
from worlds import DOSING, LENDING, contexts_of, dosing, lending

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = Search(n_screened=16, n_kept=4, n_starts=1, n_steps=2, n_draws=4, n_paths=8)
STAGED = StagedRehearsal(n_draws=8, n_paths=8, search=SMALL)
METHODS = [
    STAGED,
    NestedRehearsal(),
    ConditionalRehearsal(),
    baselines.NoAction(),
    baselines.LinearOptimal(n_draws=20),
    baselines.CARE(n_draws=20),
    baselines.QWZ23(n_worlds=8, n_draws=20, n_fresh=50),
    baselines.MICNS(n_draws=20),
]
HOSTILE = "<script>alert('x')</script>"
ROW = re.compile(r"<tr>(<td.*?)</tr>", re.DOTALL)
VALUE = re.compile(r'data-value="([^"]*)"')
PICTURE = re.compile(r"data:image/svg\+xml;base64,([\w+/=]+)")


def written(path, policy, contexts, **options):
    text = report.write(policy, contexts, path / "report.html", **options).read_text(
        encoding="utf-8"
    )
    return SimpleNamespace(text=text, page=Page(text), rows=rows_of(text))


def rows_of(text):
    """What each row of the table is sorted by."""
    body = text.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = (VALUE.findall(row) for row in ROW.findall(body))
    return [[stdlib_html.unescape(value) for value in row] for row in rows]


def pictures_of(text):
    return [base64.b64decode(found).decode("utf-8") for found in PICTURE.findall(text)]


@pytest.fixture(scope="module")
def nested():
    return NestedRehearsal().fit(LENDING, lending(120))


@pytest.fixture(scope="module")
def staged():
    return STAGED.fit(LENDING, lending(100))


@pytest.fixture(scope="module")
def contexts():
    """Twelve that are usual, one that cannot be read and one from far away."""
    given = contexts_of(LENDING, lending(120), slice(0, 14))
    given = {name: values.copy() for name, values in given.items()}
    given["score"][3], given["debt"][5] = np.nan, 50.0
    return given


@pytest.fixture(scope="module")
def made(nested, contexts, tmp_path_factory):
    return written(tmp_path_factory.mktemp("made"), nested, contexts, figures=1)


@pytest.fixture(scope="module")
def told(nested, contexts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nested.recommend(contexts)


def test_the_page_is_well_formed_and_in_this_order(made):
    heads = [
        "Which rate makes repaid ≥ 0.6 and roi ≥ 0.3 most likely, given score and",
        "Expected share of good outcomes",
        "Is it cause and effect?",
        "Decisions",
        "Chance of a good outcome by action",
        "What history allows to say",
        "What the advice assumes",
        "How to get it again",
    ]
    places = [made.page.text.index(head) for head in heads]
    assert places == sorted(places)
    assert made.text.startswith("<!DOCTYPE html>")


def test_every_number_of_the_table_is_that_of_its_decision(made, told):
    assert len(made.rows) == len(told)
    for i, (row, one) in enumerate(zip(made.rows, told, strict=True)):
        number, _, rate, before, after, gain, verdict = row
        assert int(number) == i
        assert report.facts.VERDICTS[int(verdict)] == one.verdict
        if i == 3:
            assert (rate, before, after, gain) == ("", "", "", "")
            continue
        assert float(rate) == one.actions["rate"]
        assert float(before) == one.no_action
        assert float(after) == one.probability
        assert float(gain) == one.probability - one.no_action


def test_every_reason_and_every_bar_is_there(made, told):
    bars = made.page.values("aria-label")
    for one in told:
        assert one.reason[1:] in made.page.text
        if not np.isnan(one.probability):
            label = f"without action {one.no_action:.0%}, with it {one.probability:.0%}"
            label += f", 90 % interval {one.lower:.0%} to {one.upper:.0%}"
            assert label in bars


def test_the_headline_is_the_mean_of_what_the_verdicts_lead_to(made, told):
    before, after, cautious = [], [], []
    for one in told:
        if np.isnan(one.no_action):
            continue
        before.append(one.no_action)
        after.append(one.probability if one.verdict == "act" else one.no_action)
        cautious.append(one.lower if one.verdict == "act" else one.no_action)
    headline = facts.Headline.of(told)
    assert headline.readable == 13
    assert headline.before == pytest.approx(np.mean(before))
    assert headline.after == pytest.approx(np.mean(after))
    assert headline.cautious == pytest.approx(np.mean(cautious))
    assert f'data-headline="before">{np.mean(before):.0%}<' in made.text
    assert f'data-headline="after">{np.mean(after):.0%}<' in made.text
    assert "of the 13 that could be read" in made.page.text
    for verdict in ("act", "leave", "abstain"):
        assert f"{told.verdict.count(verdict)} {verdict} " in made.page.text


def test_nothing_is_loaded_from_elsewhere(made):
    assert made.page.loaded
    assert all(
        each.startswith("data:image/svg+xml;base64,") for each in made.page.loaded
    )
    for sign in ("http://", "https://", "url(", "@import", "<link", "<iframe"):
        assert sign not in made.text
    for picture in pictures_of(made.text):
        targets = re.findall(r'href="([^"]*)"', picture)
        assert all(each.startswith(("#", "data:")) for each in targets)


def test_the_browser_is_told_to_load_nothing_and_to_run_our_script_only(made):
    (policy,) = (v for _, k, v in made.page.attributes if k == "content" and "'" in v)
    script = made.text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_the_same_question_gives_the_same_bytes(nested, contexts, made, tmp_path):
    again = written(tmp_path, nested, contexts, figures=1)
    assert re.sub(r"\d+ \w+ 20\d\d\.", "", again.text) == re.sub(
        r"\d+ \w+ 20\d\d\.", "", made.text
    )


def test_how_to_get_it_again_names_the_history_the_method_and_the_versions(
    made, nested
):
    text = made.page.text
    assert nested.schema.fingerprint.sha256 in text
    assert "Records 120" in text
    assert "forestall fit problem.toml history.csv --method nested" in text
    assert repr(nested.method) in text
    assert f"numpy {np.__version__}" in text
    toml = text.partition("problem.toml")[2]
    assert "covariates" in toml


def test_no_value_of_a_record_is_on_the_page(made, contexts):
    shown = made.text + "".join(pictures_of(made.text))
    records = lending(120)
    for name in ("stability", "rate", "repaid", "roi"):
        for value in records[name].tolist():
            assert f"{value:.6g}" not in shown


def test_calibration_is_drawn_in_tenths(staged, nested):
    for policy in (staged, nested):
        axes = figures._calibration(policy)
        assert max(len(line.get_xdata()) for line in axes.lines) <= 11


def test_what_was_simulated_is_drawn_where_the_method_can(staged, contexts, tmp_path):
    made = written(tmp_path, staged, contexts, figures=2)
    assert made.page.tags.count("img") == 2 * 2 + 2
    assert "no dot is a record" in made.page.text
    assert "Left out" not in made.page.text
    assert "Seed 0" in made.page.text


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_every_method_has_a_report(method, tmp_path):
    policy = method.fit(LENDING, lending(60))
    case = {"score": 0.4, "debt": 0.6}
    made = written(tmp_path, policy, case, figures=1)
    one = policy.recommend(case)[0]
    assert len(made.rows) == 1
    assert f"{type(method).__name__}, learned from 60 records" in made.page.text
    assert str(one) in made.page.text
    assert "Advice for 1 case " in made.page.text
    if method is not STAGED:
        assert "cannot simulate outcomes; StagedRehearsal does" in made.page.text


def test_two_actions_are_drawn_as_a_map_and_each_has_its_overlap(tmp_path):
    policy = NestedRehearsal().fit(DOSING, dosing(80))
    made = written(tmp_path, policy, {"age": [50.0, 60.0]}, figures=1)
    assert made.page.tags.count("img") == 1 + 2 + 1
    assert "Overlap: dose" in made.page.text
    assert "Overlap: time" in made.page.text
    assert "Which dose and time make" in made.page.text


def test_names_and_values_of_any_kind_stay_text(tmp_path, rng):
    context, action = HOSTILE, 'a"b & $\\frac{ <img src=x onerror=alert(1)>'
    outcome, level = "名前 \N{RIGHT-TO-LEFT OVERRIDE}", "</td><b>"
    problem = Problem(
        context=[context, "kind"],
        actions={action: (0.0, 1.0)},
        outcomes=[outcome],
        desired=[f"`{outcome}` >= 0.3"],
    )
    a, x = rng.uniform(size=(2, 60))
    history = {context: x, "kind": [level, "b"] * 30, action: a}
    history[outcome] = a * x + rng.normal(0, 0.1, 60)
    policy = NestedRehearsal().fit(problem, history)
    cases = {context: [0.5, 0.9], "kind": [level, "<i>"], "id": [HOSTILE, "&amp;"]}
    made = written(tmp_path, policy, cases, identifier="id", figures=2)
    assert made.page.tags.count("script") == 1
    # Our own: three counts and two shares; a name for each of two contexts in two rows.
    assert made.page.tags.count("b") == 3 + 2
    assert made.page.tags.count("i") == 2 * 2
    assert made.page.values("onerror") == []
    assert made.page.text.count(HOSTILE) > 4
    assert level in made.page.text
    assert made.rows[1][1] == "&amp;"
    for picture in pictures_of(made.text):
        tags = {
            each.tag.rpartition("}")[2]
            for each in ElementTree.fromstring(picture).iter()
        }
        assert "script" not in tags


def test_the_table_ends_after_two_hundred_rows_and_says_where_the_rest_is(
    nested, tmp_path
):
    many = contexts_of(LENDING, lending(250, seed=3), slice(0, 250))
    made = written(tmp_path, nested, many, figures=0)
    assert len(made.rows) == report.SHOWN == 200
    assert "The first 200 of 250 cases are shown" in made.page.text
    assert "forestall recommend policy.forestall contexts.csv" in made.page.text
    told = nested.recommend(many)
    counted = f"{told.verdict.count('abstain')} abstain History"
    assert counted in made.page.text


def test_no_context_at_all_still_makes_a_page(nested, tmp_path):
    made = written(tmp_path, nested, {"score": [], "debt": []})
    assert made.rows == []
    assert "there is nothing to expect" in made.page.text


def test_an_identifier_names_the_cases(nested, tmp_path):
    cases = {"score": [0.1, 0.2], "debt": [0.3, 0.4], "loan": ["n1", "n2"]}
    made = written(tmp_path, nested, cases, identifier="loan", figures=1)
    assert [row[1] for row in made.rows] == ["n1", "n2"]
    assert re.search(r"Case n\d", made.page.text)
    with pytest.raises(DataError, match="Expected the column 'laon' in the contexts"):
        report.write(nested, cases, tmp_path / "r.html", identifier="laon")


def test_a_policy_without_records_leaves_out_what_needs_them():
    policy = baselines.NoAction().fit(LENDING, lending(30))
    forgetful = copy.copy(policy)
    object.__setattr__(forgetful, "data", None)
    pictures = figures.of_policy(forgetful)
    assert [each.missing for each in pictures] == [figures.NO_RECORDS] * 2


def test_a_landscape_is_left_out_where_an_action_keeps_its_course(nested):
    one = Decision({}, 0.5, 0.4, 0.6, 0.4, 1.0, False, "act", "")
    picture = figures._landscape(nested, {"score": 0.5, "debt": 0.5}, one)
    assert "keep their natural course" in picture.missing


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"])
def test_figures_are_counted_in_whole_numbers(nested, tmp_path, count):
    with pytest.raises(SpecError, match="Expected figures to be whole and not below"):
        report._checked(count)


def test_a_place_that_cannot_be_written_is_an_error_of_ours(nested, tmp_path):
    with pytest.raises(
        DataError, match="Expected a file to write the report to; could"
    ):
        report.write(nested, {"score": 0.5, "debt": 0.5}, tmp_path, figures=0)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_report_whole(nested, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(DataError, match="Expected the column 'debt'"):
        report.write(nested, {"score": [0.5]}, path)
    assert path.read_text() == "old"
    assert report.write(nested, {"score": 0.5, "debt": 0.5}, path, figures=0) == path
    assert "<!DOCTYPE" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_it_says_what_to_install(nested, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'forestall\[plots\]'"):
        report.write(nested, {"score": 0.5, "debt": 0.5}, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["act", "leave", "abstain"]),
            st.floats(0, 1) | st.just(np.nan),
        ),
        max_size=8,
    ),
    most=st.integers(0, 5),
)
def test_those_to_act_on_are_drawn_first_then_those_with_most_to_gain(rows, most):
    p = np.array([p for _, p in rows], dtype=float)
    verdicts = [v for v, _ in rows]
    acts = [i for i, v in enumerate(verdicts) if v == "act"]
    rest = [i for i in range(len(rows)) if i not in acts and not np.isnan(p[i])]
    rest.sort(key=lambda i: -p[i])
    assert facts.chosen(verdicts, p, most) == (acts + rest)[:most]


def test_a_question_of_many_contexts_stays_one_sentence():
    names = [f"x_{k}" for k in range(40)]
    fields = dict(actions={"a": (0, 1)}, outcomes=["y"], desired=["y >= 0"])
    asked = words.question(Problem(context=names, **fields))
    assert asked.endswith("given x 0, x 1, x 2, x 3, x 4 and 35 more?")
    asked = words.question(Problem(context=names[:6], **fields))
    assert asked.endswith("given x 0, x 1, x 2, x 3, x 4 and x 5?")


def test_commands_call_every_method_as_the_command_line_does():
    for name, (_, kind) in cli.methods.METHODS.items():
        assert facts.command_name(kind) == name
        assert kind in words.METHODS


@pytest.fixture(scope="module")
def browser():
    executable = chromium_or_skip()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox"]
        )
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, nested, contexts, tmp_path):
    """The page in a browser, with what it asked for and complained about."""
    report.write(nested, contexts, tmp_path / "report.html", figures=1)
    page = browser.new_page()
    page.requests, page.complaints = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    page.close()


def column(page, k):
    cells = page.locator(f"#decisions tbody td:nth-child({k})")
    return cells.evaluate_all("all => all.map(each => each.dataset.value)")


def numbers(values):
    return [float(value) for value in values if value != ""]


@pytest.mark.heavy
def test_a_click_sorts_by_a_column_and_a_second_turns_it_round(opened):
    before = column(opened, 5)
    button = opened.get_by_role("button", name="with it")
    button.click()
    up = column(opened, 5)
    assert numbers(up) == sorted(numbers(before))
    assert up[-1] == ""
    assert opened.locator("th[aria-sort=ascending]").inner_text().startswith("with it")
    button.click()
    down = column(opened, 5)
    assert numbers(down) == sorted(numbers(before), reverse=True)
    assert down[-1] == ""
    assert opened.locator("#sorted").inner_text() == "Sorted by with it, largest first."


@pytest.mark.heavy
def test_the_keyboard_sorts_as_well(opened):
    opened.get_by_role("button", name="verdict").focus()
    opened.keyboard.press("Enter")
    assert column(opened, 7) == sorted(column(opened, 7))
    opened.get_by_role("button", name="row").focus()
    opened.keyboard.press("Space")
    assert column(opened, 1) == [str(i) for i in range(14)]


@pytest.mark.heavy
def test_the_browser_shows_every_figure_without_a_complaint_or_a_request(opened):
    sizes = "all => all.map(each => each.complete && each.naturalWidth)"
    assert min(opened.locator("img").evaluate_all(sizes)) > 100
    opened.get_by_role("button", name="gain").click()
    assert opened.complaints == []
    elsewhere = [u for u in opened.requests if not u.startswith(("file:", "data:"))]
    assert elsewhere == []


@pytest.mark.heavy
def test_it_fits_a_phone_without_scrolling_sideways(opened):
    opened.set_viewport_size({"width": 390, "height": 800})
    wide = opened.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390


@pytest.mark.heavy
def test_it_prints_to_a_few_pages_with_everything_unfolded(opened):
    printed = opened.pdf(prefer_css_page_size=True)
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 2 <= pages <= 5
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.locator("details:not([open])").count() == 0
