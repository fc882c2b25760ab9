"""Figures: the right artists at the right places, and no global state."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forestall import NestedRehearsal, Problem, plots, views
from forestall.errors import (
    DataError,
    ForestallWarning,
    MissingExtraError,
    RegionError,
    SpecError,
)
from forestall.ink import density
from forestall.region import Polytope
from forestall.staged import StagedRehearsal
from worlds import DOSING, LENDING, dosing, lending

matplotlib = pytest.importorskip("matplotlib")

GOOD_LOAN = Polytope.parse(["a >= 0.6", "b >= 0.3"], ["a", "b"])
TRIANGLE = Polytope.parse(["a >= 0", "b >= 0", "a + b <= 1"], ["a", "b"])
SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def area(corners):
    x, y = corners.T
    return 0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))


@pytest.fixture
def axes():
    return plots.panels(1).axes[0]


@pytest.fixture
def cloud(rng):
    return plots.Cloud("no action", rng.uniform(size=(200, 2)), 0.28, "no action")


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_panels_stand_side_by_side_in_one_style():
    figure = plots.panels(3)
    assert len(figure.axes) == 3
    assert not any(axes.spines["top"].get_visible() for axes in figure.axes)
    lefts = [axes.get_position().x0 for axes in figure.axes]
    assert lefts == sorted(lefts)


def test_outcomes_are_scattered_with_their_share_in_the_legend(axes, cloud):
    drawn = plots.outcomes(axes, GOOD_LOAN, [cloud])
    assert drawn is axes
    assert len(axes.collections) == 1
    np.testing.assert_array_equal(axes.collections[0].get_offsets(), cloud.points)
    assert legend_of(axes) == ["no action: 28.0% inside", "desired region"]
    assert axes.get_xlabel() == "a"


def test_clouds_differ_in_marker_and_colour(axes, rng):
    clouds = [
        plots.Cloud(name, rng.normal(size=(9, 2)), 0.5, name)
        for name in ("single", "nested")
    ]
    plots.outcomes(axes, GOOD_LOAN, clouds)
    one, two = axes.collections
    assert one.get_facecolor().tolist() != two.get_facecolor().tolist()
    shapes = [each.get_paths()[0].vertices.shape for each in (one, two)]
    assert shapes[0] != shapes[1]


def test_the_shaded_part_is_the_region_inside_the_axes(axes, cloud):
    limits = (np.array([0.0, 0.0]), np.array([1.0, 1.0]))
    plots.outcomes(axes, GOOD_LOAN, [cloud], limits)
    (patch,) = axes.patches
    assert area(patch.get_xy()[:-1]) == pytest.approx(0.4 * 0.7)


def test_edges_are_drawn_where_a_constraint_is_and_not_where_the_axes_end(axes, cloud):
    limits = (np.array([0.0, 0.0]), np.array([1.0, 1.0]))
    plots.outcomes(axes, GOOD_LOAN, [cloud], limits)
    sides = [np.sort(line.get_xydata(), 0).round(9).tolist() for line in axes.lines]
    assert sorted(sides) == [[[0.6, 0.3], [0.6, 1.0]], [[0.6, 0.3], [1.0, 0.3]]]


def test_the_limits_show_the_boundary_even_where_no_point_is(rng):
    low = plots.Cloud("low", rng.uniform(0.0, 0.1, size=(50, 2)), 0.0, "single")
    (left, bottom), (right, top) = plots.limits_of(GOOD_LOAN, [low])
    assert left < 0.1
    assert bottom < 0.1
    assert right > 0.6
    assert top > 0.3


def test_a_region_out_of_sight_shades_nothing(axes):
    axes.set(xlim=(0.0, 0.5), ylim=(0.0, 0.2))
    plots.shade(axes, GOOD_LOAN)
    assert len(axes.patches) == 0


def test_a_region_of_three_outcomes_cannot_be_drawn(axes):
    region = Polytope.parse(["a + b + c <= 1"], ["a", "b", "c"])
    with pytest.raises(
        RegionError, match="region of two outcomes to draw; got 3: a, b"
    ):
        plots.shade(axes, region)


def test_clipping_by_a_triangle_leaves_half_the_square():
    assert area(plots.clip(SQUARE, TRIANGLE)) == pytest.approx(0.5)


@given(
    normal=arrays(float, 2, elements=st.floats(-1, 1)).filter(
        lambda m: abs(m).max() > 0.1
    ),
    offset=st.floats(-2, 2),
)
def test_clipping_keeps_exactly_what_lies_in_the_region(normal, offset):
    region = Polytope(normal[None], np.array([offset]))
    corners = plots.clip(SQUARE, region)
    assert (region.slack(corners) >= -1e-9).all()
    rest = plots.clip(SQUARE, Polytope(-normal[None], np.array([-offset])))
    assert area(corners) + area(rest) == pytest.approx(1.0)


def test_curves_are_drawn_on_the_grid_with_their_maxima_marked(axes):
    grid = np.linspace(0.0, 1.0, 11)
    lines = [
        plots.Curve("nested", grid * (1 - grid), "nested", peak=(0.5, 0.25)),
        plots.Curve("truth", grid, "truth", dashed=True),
    ]
    plots.curves(axes, grid, lines)
    assert legend_of(axes) == ["nested", "truth"]
    data = [line.get_xydata().tolist() for line in axes.lines]
    assert [[0.5, 0.25]] in data
    assert np.column_stack([grid, grid]).tolist() in data
    assert axes.get_xlim() == (0.0, 1.0)


def test_smoothing_draws_the_indicator_and_a_curve_for_each_eta(axes):
    plots.smoothing(axes, (5.0, 20.0, 80.0))
    hard, *smooth = (line.get_ydata() for line in axes.lines)
    assert set(hard) == {0.0, 1.0}
    gaps = [np.abs(hard - w).mean() for w in smooth]
    assert gaps == sorted(gaps, reverse=True)
    assert legend_of(axes)[0] == "indicator of S"


def test_a_figure_is_saved_without_pyplot(tmp_path):
    code = (
        "import sys; from forestall import plots\n"
        "figure = plots.panels(1); plots.smoothing(figure.axes[0])\n"
        f"figure.savefig({str(tmp_path / 'w.png')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert (tmp_path / "w.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'forestall\[plots\]'"):
        plots.panels(1)


@pytest.fixture(scope="module")
def lender():
    return FAST.fit(LENDING, lending(150))


@pytest.fixture(scope="module")
def doser():
    return FAST.fit(DOSING, dosing(150))


@pytest.fixture(scope="module")
def kernel():
    return NestedRehearsal().fit(DOSING, dosing(100))


FAST = StagedRehearsal(n_draws=16, n_paths=32)
APPLICANT = {"score": 0.3, "debt": 0.8}
PATIENT = {"age": 55.0}


def test_a_landscape_over_one_action_has_line_band_level_and_advice(lender):
    drawn = plots.landscape(lender, APPLICANT)
    advice = lender.recommend(APPLICANT)[0]
    labels = legend_of(drawn)
    assert "90 % interval" in labels
    assert f"without action: {advice.no_action:.0%}" in labels
    assert any(text.startswith("advice: rate") for text in labels)
    curve = next(ln for ln in drawn.lines if ln.get_label() == "with this action")
    grid, p = curve.get_data()
    told = lender.evaluate({k: [v] * 2 for k, v in APPLICANT.items()}, [[0.0], [1.0]])
    assert (grid[0], grid[-1]) == (0.0, 1.0)
    np.testing.assert_allclose(p[[0, -1]], told.probability, atol=0.03)
    assert [advice.actions["rate"], advice.probability] in [
        line.get_xydata().tolist()[0] for line in drawn.lines
    ]


def test_where_history_is_silent_the_landscape_is_hatched():
    history = lending(150)
    history["rate"] = 0.3 + 0.1 * history["score"]
    history["rate"] += np.random.default_rng(1).normal(0, 0.02, 150)
    drawn = plots.landscape(FAST.fit(LENDING, history), APPLICANT)
    shaded = [patch for patch in drawn.patches if patch.get_hatch()]
    assert views.UNLIKE in legend_of(drawn)
    ends = sorted(patch.get_extents().x1 for patch in shaded)
    assert len(ends) == 2
    assert all(patch.get_x() >= 0.0 for patch in shaded)


def test_a_landscape_over_two_actions_has_contours_advice_and_what_is_usual(doser):
    drawn = plots.landscape(doser, PATIENT)
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("dose", "time")
    assert drawn.get_xlim() == (0.0, 2.0)
    assert len(drawn.figure.axes) == 2
    labels = legend_of(drawn)
    assert any(text.startswith("as likely as without action") for text in labels)
    assert any("dose" in text and "time" in text for text in labels)
    assert views.SURE in labels


def test_the_line_around_credible_actions_has_those_inside_that_are_acted_on(doser):
    drawn = plots.landscape(doser, PATIENT)
    colour = views.ink.colour("third")
    (line,) = [
        each
        for each in drawn.collections
        if len(each.get_edgecolor())
        and matplotlib.colors.same_color(each.get_edgecolor()[0], colour)
    ]
    points = np.concatenate([path.vertices for path in line.get_paths()])
    told = doser.evaluate({"age": [55.0] * len(points)}, np.clip(points, [0, -1], 2))
    # On the line the lower end is about what it is without action.
    assert np.abs(told.lower - told.no_action).mean() < 0.1


def test_where_every_action_is_credible_no_line_is_promised(rng):
    a, b = rng.normal(size=(2, 300))
    y = a + b + 0.5 * rng.normal(size=300)
    problem = Problem(
        context=["x"],
        actions={"a": (0.6, 1.2), "b": (0.6, 1.2)},
        outcomes=["y"],
        desired=["y >= 1"],
    )
    policy = FAST.fit(problem, {"x": rng.normal(size=300), "a": a, "b": b, "y": y})
    labels = legend_of(plots.landscape(policy, {"x": 0.0}))
    assert views.ALL_SURE in labels
    assert views.SURE not in labels


def test_the_legend_of_a_calibration_shows_dashes(lender):
    drawn = plots.calibration(lender)
    assert drawn.get_legend().handlelength > 4


def test_an_action_that_is_not_shown_is_held_as_advised(doser):
    drawn = plots.landscape(doser, PATIENT, "dose")
    held = doser.recommend(PATIENT)[0].actions["time"]
    assert drawn.get_title() == f"with time {held:.3g}"


def test_a_landscape_shows_no_record(lender, doser):
    for policy, context in ((lender, APPLICANT), (doser, PATIENT)):
        drawn = plots.landscape(policy, context)
        taken = policy.schema.actions_to_units(policy.data.a)[:, 0]
        for line in drawn.lines:
            assert not np.isin(np.asarray(line.get_xdata(), dtype=float), taken).any()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ("dos", "got 'dos'. Did you mean 'dose'"),
        (["dose", "dose"], "two different ones; got dose, dose"),
        ([], "got none"),
    ],
)
def test_only_one_or_two_known_actions_can_be_shown(doser, actions, message):
    with pytest.raises(SpecError, match=message):
        plots.landscape(doser, PATIENT, actions)


def test_before_and_after_are_clouds_beside_the_region(lender):
    drawn = plots.before_after(lender, APPLICANT)
    before, after, region = legend_of(drawn)
    assert before.startswith("without action: ")
    assert after.startswith("as advised: ")
    assert region == "desired region"
    advice = lender.recommend(APPLICANT)[0]
    shares = [float(text.split()[-2].rstrip("%")) / 100 for text in (before, after)]
    assert shares == pytest.approx([advice.no_action, advice.probability], abs=0.06)
    points = np.concatenate([c.get_offsets() for c in drawn.collections[:2]])
    assert not np.isin(points, lender.data.y_raw).any()


def test_before_and_after_of_one_outcome_are_densities(doser):
    drawn = plots.before_after(doser, PATIENT, {"dose": 1})
    assert legend_of(drawn)[1].startswith("dose 1: ")
    for line in drawn.lines[:2]:
        x, height = line.get_data()
        assert np.trapezoid(height, x) == pytest.approx(1.0, abs=0.05)
    (span,) = drawn.patches
    assert (span.get_x(), span.get_x() + span.get_width()) == pytest.approx((0.5, 1.5))


def test_an_action_outside_its_interval_is_drawn_with_a_warning(doser):
    message = r"'dose' in its feasible interval \[0, 2\]; got 99"
    with pytest.warns(ForestallWarning, match=message):
        plots.before_after(doser, PATIENT, {"dose": 99})


@pytest.mark.parametrize("dose", ["1", None, [1.0], np.nan])
def test_an_action_that_is_no_number_is_refused(doser, dose):
    with pytest.raises(DataError, match="number for the action 'dose'; got"):
        plots.before_after(doser, PATIENT, {"dose": dose})


def test_one_of_two_outcomes_is_shown_with_its_own_constraint(lender):
    drawn = plots.before_after(lender, APPLICANT, outcomes=["roi"])
    assert drawn.get_xlabel() == "roi"
    (span,) = drawn.patches
    assert span.get_x() == pytest.approx(0.3)
    with pytest.raises(SpecError, match=r"got 'rio'\. Did you mean 'roi'"):
        plots.before_after(lender, APPLICANT, outcomes=["rio"])


def test_overlap_shows_what_was_usual_and_what_is_feasible(lender, kernel):
    for policy, action in ((lender, "rate"), (kernel, None)):
        drawn = plots.overlap(policy, action)
        labels = legend_of(drawn)
        assert labels[0] == "feasible"
        assert "usual, given what was known" in labels
        assert "of the feasible interval" in drawn.get_title()
        usual = next(ln for ln in drawn.lines if ln.get_label() in labels)
        assert (np.diff(usual.get_ydata()) >= 0).all()


def test_calibration_draws_a_line_for_each_mechanism_near_the_diagonal(lender):
    drawn = plots.calibration(lender)
    assert legend_of(drawn) == [
        "what chance allows",
        "stability",
        "rate",
        "repaid",
        "roi",
    ]
    for line in drawn.lines[1:]:
        levels, share = line.get_data()
        assert np.abs(levels - share).max() < 1.63 / np.sqrt(150)


def test_calibration_of_a_kernel_policy_is_its_reliability(kernel):
    drawn = plots.calibration(kernel)
    assert drawn.get_xlabel() == "predicted chance of a good outcome"
    assert legend_of(drawn) == ["a tenth of the records, with 90 % interval"]


def test_figures_of_a_policy_are_drawn_where_they_are_told(lender, axes):
    assert plots.calibration(lender, ax=axes) is axes
    assert plots.overlap(lender, ax=plots.panels(2).axes[1]).get_title()


@given(shift=st.floats(-5, 5), scale=st.floats(0.1, 5))
def test_a_density_integrates_to_one_wherever_it_is(shift, scale):
    points = shift + scale * np.random.default_rng(0).normal(size=100)
    grid = np.linspace(points.min() - 3 * scale, points.max() + 3 * scale, 2001)
    height = density(points, grid)
    assert np.trapezoid(height, grid) == pytest.approx(1.0, abs=1e-3)
