"""Figures: the right artists at the right places, and no global state."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forestall import plots
from forestall.errors import MissingExtraError, RegionError
from forestall.region import Polytope

pytest.importorskip("matplotlib")

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
