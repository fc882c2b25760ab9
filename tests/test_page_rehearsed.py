"""The what-if page with policies that rehearse: rough answers, clouds, histograms."""

import json
import statistics
import time
import warnings
from itertools import product

import numpy as np
import pytest

from browsing import assert_shows, browsing, shown, typical
from forestall import NestedRehearsal, Problem, StagedRehearsal, tasks
from forestall.decisions import percent
from forestall.search import Search
from serving import Process, post, served
from worlds import DOSING, dosing

pytestmark = pytest.mark.heavy

QUICK = Search(n_screened=16, n_kept=4, n_starts=1, n_steps=2, n_draws=4, n_paths=4)
# Seconds that an answer is held back, to see what stands there meanwhile.
DELAY = 0.2


@pytest.fixture(scope="module")
def chromium():
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def dosing_url():
    with served(NestedRehearsal().fit(DOSING, dosing(150))) as address:
        yield address


def rehearsed(problem, history, method=None):
    """Fit, whatever so few records are warned of."""
    method = method or StagedRehearsal(n_draws=4, n_paths=8, search=QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return method.fit(problem, history)


def slowed(watched):
    """Hold every what-if back for a while, and let the page learn that it is slow."""

    def late(route):
        time.sleep(DELAY)
        route.continue_()

    watched.page.route("**/v1/whatif", late)
    watched.page.locator("#action-fields input[type=range]").first.press("ArrowRight")
    watched.quiet()


# Every setting that was shown on the way, with the chance that stood beside it.
DRAG = """async ([name, from, to, steps, pause]) => {
  const setting = document.getElementById('setting'), seen = [], took = [];
  const chance = document.getElementById('probability');
  const slider = document.querySelector(`[data-name="${name}"] [type=range]`);
  let start = 0, moved = () => {};
  const watch = new MutationObserver(() => {
    seen.push([setting.textContent, chance.textContent]);
    moved();
  });
  watch.observe(setting, {childList: true});
  for (let i = 1; i <= steps; i++) {
    const done = new Promise(resolve => { moved = resolve; });
    start = performance.now();
    slider.value = from + (to - from) * i / steps;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    await done;
    took.push(performance.now() - start);
    await new Promise(resolve => setTimeout(resolve, pause));
  }
  while (document.getElementById('whatif').getAttribute('aria-busy') === 'true')
    await new Promise(requestAnimationFrame);
  watch.disconnect();
  return {seen, took};
}"""


@pytest.fixture
def default_url(tmp_path):
    """The default method in a process of its own, where no types are checked."""
    task = tasks.get("non-syn1")
    policy = rehearsed(task.problem, task.history(1000, 0), StagedRehearsal())
    process = Process(policy.save(tmp_path / "policy.forestall"), tmp_path)
    yield process.url
    process.stop()


def test_a_drag_is_followed_within_a_blink_by_the_default_method(
    chromium, default_url, capsys
):
    url = default_url
    with shown(chromium, url) as watched:
        took = []
        for name, (low, high) in tasks.get("non-syn1").problem.actions.items():
            told = watched.page.evaluate(DRAG, [name, low, high, 30, 16])
            took += told["took"]
            watched.quiet()
            actions = json.loads(
                watched.page.locator("#whatif").get_attribute("data-answers")
            )
            start = time.perf_counter()
            question = {"contexts": [typical(url)], "actions": actions}
            (row,) = post(url, "whatif", question).json()["decisions"]
            exact = 1000 * (time.perf_counter() - start)
            assert_shows(watched, row)
        page = statistics.median(took)
        with capsys.disabled():
            print(
                f"\ndrag to page {page:.1f} ms, roughly (median of {len(took)}); the "
                f"exact answer takes {exact:.0f} ms"
            )
        assert page < 50


def test_what_is_read_off_a_map_is_marked_and_then_made_exact(chromium, dosing_url):
    with shown(chromium, dosing_url) as watched:
        slowed(watched)
        time_ = float(watched.box("time").input_value())
        told = watched.page.evaluate(DRAG, ["dose", 0.4, 1.6, 40, 16])
        doses = [float(text.split(",")[0].split()[-1]) for text, _ in told["seen"]]
        assert doses == sorted(doses)
        assert doses[-1] == 1.6
        rough = 0
        for dose, (_, text) in zip(doses, told["seen"], strict=True):
            question = {
                "contexts": [typical(dosing_url)],
                "actions": {"dose": dose, "time": time_},
            }
            (row,) = post(dosing_url, "whatif", question).json()["decisions"]
            if text.startswith("≈ "):
                rough += 1
                percents = text.removeprefix("≈ ").removesuffix("%").split()[-1]
                assert abs(int(percents.rstrip("%")) - 100 * row["probability"]) <= 4
            else:
                assert text == percent(row["probability"])
        assert rough > 20
        assert "≈" not in watched.text("whatif")
        assert_shows(watched, row)


def test_a_rough_answer_has_no_verdict_and_says_that_it_is_rough(chromium, dosing_url):
    with shown(chromium, dosing_url) as watched:
        held = []
        watched.page.route("**/v1/whatif", lambda route: held.append(route))
        without = watched.text("no-action")
        watched.slider("dose").fill("0.3")
        watched.page.wait_for_selector("#whatif.rough")
        for id_ in ("probability", "interval", "gain", "support"):
            assert watched.text(id_).startswith("≈ ")
        assert watched.text("reason").startswith("Roughly")
        assert watched.text("whatif-badge") == ""
        assert watched.text("no-action") == without
        assert watched.page.locator("#whatif").get_attribute("aria-busy") == "true"
        held[0].continue_()
        watched.page.wait_for_selector("#whatif:not(.rough)")
        assert watched.text("whatif-badge") != ""


def test_an_action_that_no_picture_shows_has_its_curve_fetched(chromium, dosing_url):
    with shown(chromium, dosing_url) as watched:
        watched.page.select_option("#over-2", "")
        watched.page.wait_for_selector("#landscape-plot[data-over=dose]")
        watched.quiet()
        slowed(watched)
        dose = float(watched.box("dose").input_value())
        told = watched.page.evaluate(DRAG, ["time", -0.8, 0.8, 60, 16])
        curves = [
            body for body in watched.bodies("landscape") if body["over"] == ["time"]
        ]
        assert [body["at"] for body in curves] == [{"dose": dose}]
        assert any(text.startswith("≈") for _, text in told["seen"])
        question = {
            "contexts": [typical(dosing_url)],
            "actions": {"dose": dose, "time": 0.8},
        }
        assert_shows(
            watched, post(dosing_url, "whatif", question).json()["decisions"][0]
        )


def test_between_the_points_of_a_grid_every_axis_is_straight(chromium, dosing_url):
    rng = np.random.default_rng(0)
    cases = []
    for d in (1, 2) * 20:
        axes = [np.sort(rng.normal(size=rng.integers(2, 6))) for _ in range(d)]
        values = rng.uniform(size=[len(axis) for axis in axes])
        point = [rng.uniform(axis[0], axis[-1]) for axis in axes]
        cases.append((axes, values, point))
    sent = [[[a.tolist() for a in axes], v.tolist(), p] for axes, v, p in cases]
    with shown(chromium, dosing_url) as watched:
        told = watched.page.evaluate(
            "async cases => { const { between } = await import('/static/foretold.js');"
            " return cases.map(([axes, values, point]) => ["
            " between(axes, values, point),"
            " between(axes, values, axes.map(axis => axis.at(-1))),"
            " between(axes, values, axes.map(axis => axis[0] - 1))]) }",
            sent,
        )
    for (axes, values, point), (found, last, outside) in zip(cases, told, strict=True):
        assert found == pytest.approx(straight(axes, values, point))
        assert last == pytest.approx(values.flat[-1])
        assert outside is None


def straight(axes, values, point):
    """Weigh every point of the grid by the product of its tents."""
    tents = [
        [np.interp(at, axis, np.eye(len(axis))[k]) for k in range(len(axis))]
        for axis, at in zip(axes, point, strict=True)
    ]
    return sum(
        values[place] * np.prod([tent[i] for tent, i in zip(tents, place, strict=True)])
        for place in product(*(range(len(axis)) for axis in axes))
    )


def outcomes_url(outcomes, desired):
    """A policy with some outcomes of one dose."""
    rng = np.random.default_rng(0)
    n = 80
    dose = rng.uniform(0, 1, n)
    history = {"age": rng.normal(50, 9, n), "dose": dose}
    for k, name in enumerate(outcomes):
        history[name] = (k + 1) * dose + rng.normal(0, 0.2, n)
    problem = Problem(
        context=["age"], actions={"dose": (0, 1)}, outcomes=outcomes, desired=desired
    )
    return served(rehearsed(problem, history))


def drawn(watched):
    return watched.page.evaluate("() => document.getElementById('outcomes-plot').data")


def draws_of(watched):
    """What the service draws, without action and with the setting."""
    return [
        np.array(post(watched.url, "outcomes", body).json()["draws"])
        for body in watched.bodies("outcomes")[-2:]
    ]


def test_of_three_outcomes_any_two_are_chosen_by_menus(chromium):
    names = ["cost", "relief", "side_effects"]
    with (
        outcomes_url(names, ["cost <= 0.8", "relief >= 0.6"]) as url,
        shown(chromium, url) as watched,
    ):
        page = watched.page
        for id_ in ("show-1", "show-2"):
            assert page.locator(f"#{id_}").is_visible()
            options = page.locator(f"#{id_} option").all_text_contents()
            assert options == ["cost", "relief", "side effects"]
        told = draws_of(watched)
        for k, m in ((0, 1), (2, 0), (1, 2), (2, 1)):
            page.select_option("#show-1", str(k))
            page.select_option("#show-2", str(m))
            page.wait_for_function(
                "title => document.getElementById('outcomes-plot').layout.yaxis"
                ".title.text === title",
                arg=names[m].replace("_", " "),
            )
            _, *clouds = drawn(watched)
            for cloud, draws in zip(clouds, told, strict=True):
                np.testing.assert_allclose(cloud["x"], draws[:, k], atol=1e-6)
                np.testing.assert_allclose(cloud["y"], draws[:, m], atol=1e-6)
            hidden = "Conditions on other outcomes are not drawn."
            assert (hidden in watched.text("outcomes-note")) == ({k, m} != {0, 1})


def test_the_region_is_drawn_on_the_outcomes_that_are_shown(chromium):
    with (
        outcomes_url(["cost", "relief", "risk"], ["cost <= 0.8", "risk >= 1"]) as url,
        shown(chromium, url) as watched,
    ):
        watched.page.select_option("#show-2", "2")
        watched.page.wait_for_function(
            "() => document.getElementById('outcomes-plot').layout.yaxis.title.text"
            " === 'risk'"
        )
        region, *_ = drawn(watched)
        assert max(region["x"]) == pytest.approx(0.8)
        assert min(region["y"]) == pytest.approx(1.0)
        # The same outcome twice is one outcome.
        watched.page.select_option("#show-1", "2")
        watched.page.wait_for_function(
            "() => document.getElementById('outcomes-plot').data[1].type"
            " === 'histogram'"
        )
        np.testing.assert_allclose(
            drawn(watched)[2]["x"], draws_of(watched)[1][:, 2], atol=1e-6
        )


def test_one_outcome_is_a_histogram_over_the_desired_interval(chromium):
    with (
        outcomes_url(["relief"], ["0.3 <= relief <= 0.9"]) as url,
        shown(chromium, url) as watched,
    ):
        page = watched.page
        for id_ in ("show-1", "show-2"):
            assert page.locator(f"#{id_}").is_hidden()
        watched.slider("dose").fill("0.6")
        watched.answered({"dose": 0.6})
        watched.quiet()
        before, after = watched.bodies("outcomes")[-2:]
        assert (before["actions"], after["actions"]) == (None, {"dose": 0.6})
        _, *bars = drawn(watched)
        for bar, draws in zip(bars, draws_of(watched), strict=True):
            assert bar["type"] == "histogram"
            np.testing.assert_allclose(bar["x"], draws[:, 0], atol=1e-6)
        (rectangle,) = page.evaluate(
            "() => document.getElementById('outcomes-plot').layout.shapes"
        )
        assert (rectangle["x0"], rectangle["x1"]) == pytest.approx((0.3, 0.9))
        assert page.locator("#outcomes-plot .bars path").count() > 5
