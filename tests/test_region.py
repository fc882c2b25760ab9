from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forestall.errors import ForestallError, RegionError, SpecError
from forestall.region import Polytope, ProbitDesirability

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MODERATE = st.floats(-100, 100).map(lambda v: round(v, 3))
COMPARE = {
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "<": np.less,
    ">": np.greater,
}
OPS = st.sampled_from(sorted(COMPARE))
ODD_NAMES = [
    "yield",
    "lambda",
    "ﬁne",
    "x.1",
    "debt to income",
    "FPG (mg/dL)",
    "आय",
    "`",
]


def region(*constraints: str, names: tuple[str, ...] = ("a", "b")) -> Polytope:
    return Polytope.parse(list(constraints), names)


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def half_space(text: str) -> tuple[list[float], float]:
    rows = region(text)
    assert len(rows) == 1
    return rows.normals[0].tolist(), float(rows.offsets[0])


# Reading text


@pytest.mark.parametrize(
    ("text", "normal", "offset"),
    [
        ("a <= 2", [1, 0], 2),
        ("a >= 2", [-1, 0], -2),
        ("2 >= a", [1, 0], 2),
        ("0.5*a + b <= 2", [0.5, 1], 2),
        ("a <= b", [1, -1], 0),
        ("2*(a - b)/4 > 1e-3", [-0.5, 0.5], -1e-3),
        ("-(a - 3) + +b <= 2*a - 1", [-3, 1], -4),
        ("b*3 - 1_000 <= .5e1", [0, 3], 1005),
        ("a ≤ 2 × b − 1", [1, -2], -1),
        ("  a\n  + b <= 1 ", [1, 1], 1),
    ],
)
def test_text_means_the_half_space_it_says(text, normal, offset):
    got_normal, got_offset = half_space(text)
    length = np.linalg.norm(normal)
    np.testing.assert_allclose(got_normal, np.array(normal) / length, rtol=1e-15)
    assert got_offset == pytest.approx(offset / length, rel=1e-15)


@given(c=st.tuples(MODERATE, MODERATE), bound=MODERATE, op=OPS)
def test_random_linear_text_gives_the_same_half_space(c, bound, op):
    assume(any(c))
    rows = region(f"{c[0]!r}*a + {bound!r} {op} 2*{bound!r} - b*{c[1]!r}")
    sign = 1 if op[0] == "<" else -1
    expected = sign * np.array([*c, bound]) / np.linalg.norm(c)
    np.testing.assert_allclose(rows.normals[0], expected[:-1], rtol=1e-12)
    np.testing.assert_allclose(rows.offsets[0], expected[-1], rtol=1e-12)
    assert rows.strict[0] == (len(op) == 1)


@given(
    M=arrays(float, (3, 2), elements=MODERATE),
    b=arrays(float, 3, elements=MODERATE),
    strict=arrays(bool, 3),
    name=st.sampled_from(ODD_NAMES),
)
def test_generated_text_reads_back_as_the_same_region(M, b, strict, name):
    assume(M.any(axis=1).all())
    made = Polytope.from_arrays(M, b, [name, "y"], strict)
    read = Polytope.parse(made.texts, made.names)
    np.testing.assert_array_equal(read.normals, made.normals)
    np.testing.assert_array_equal(read.offsets, made.offsets)
    np.testing.assert_array_equal(read.strict, made.strict)


def test_a_chain_gives_two_rows_that_carry_its_text():
    rows = region("0.9 <= a < 1.5")
    assert rows.texts == ("0.9 <= a < 1.5",) * 2
    assert rows.strict.tolist() == [False, True]
    inside = rows.contains(np.array([[0.9, 0.0], [1.2, 0.0], [1.5, 0.0], [0.8, 0.0]]))
    assert inside.tolist() == [True, True, False, False]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_works_in_backticks(name):
    quoted = name.replace("`", "``")
    rows = region(f"2*`{quoted}` >= 1.2 + y", names=("y", name))
    assert rows.contains(np.array([[0.0, 0.6]])).all()
    assert not rows.contains(np.array([[0.0, 0.5]])).any()


@pytest.mark.parametrize("name", ["yield", "lambda", "ﬁne", "x.1", "आय", "e3", "é"])
def test_plain_words_of_any_script_need_no_backticks(name):
    assert region(f"1e3*{name}>=2e3", names=(name, "y")).offsets.tolist() == [-2.0]


def test_numbers_are_no_names_even_next_to_a_name_that_looks_like_one():
    assert half_space_of("1e3 <= e3", "e3") == ([-1.0], -1000.0)


def half_space_of(text: str, name: str) -> tuple[list[float], float]:
    rows = Polytope.parse([text], [name])
    return rows.normals[0].tolist(), float(rows.offsets[0])


UNREADABLE = "Expected a linear inequality such as .*which cannot be read"
NONLINEAR = "Expected a constraint linear in the outcomes"
NOT_FINITE = "Expected a constraint with finite numbers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a <=", UNREADABLE),
        ("3a <= 1", "Write products with \\*"),
        ("a <= 60%", UNREADABLE),
        ("a <= 1 and b <= 2", "several constraints as several entries"),
        ("a <= 1, b <= 2", UNREADABLE),
        ("a <= 1 # + b", UNREADABLE),
        ("a <= 1\0", UNREADABLE),
        ("(" * 5000 + "a <= 1", UNREADABLE),
        ("a" + "+a" * 20_000 + "<= 1", UNREADABLE),
        ("", UNREADABLE),
        ("a*b <= 1", f"{NONLINEAR}.*'a \\* b' is not linear"),
        ("a**2 <= 1", f"{NONLINEAR}.*'a \\*\\* 2' is not linear"),
        ("1/a <= 1", f"{NONLINEAR}.*'1 / a' is not linear"),
        ("sin(a) <= 1", f"{NONLINEAR}.*'sin\\(a\\)' is not linear"),
        ("abs(a) <= 1", f"{NONLINEAR}.*'abs\\(a\\)' is not linear"),
        ("3(a - b) <= 1", NONLINEAR),
        ("(a <= 1) <= b", NONLINEAR),
        ("'a' <= b", NONLINEAR),
        ("a == 1", "got 'a == 1', whose region has no interior. Give an interval"),
        ("a = 1", "Expected an inequality; got 'a = 1', whose region has no interior"),
        ("a != 1", "Expected an inequality; got 'a != 1', whose region is not convex"),
        ("a + b", "Expected a comparison with <=.*got 'a \\+ b', which has none"),
        ("1 <= 2", "Expected a constraint on an outcome; got '1 <= 2'.*'a' and 'b'"),
        ("a - a <= 2", "which compares numbers only"),
        ("0 <= a <= 1 <= 2", "which compares numbers only"),
        ("a <= 1e999", NOT_FINITE),
        ("a <= inf", NOT_FINITE),
        ("a <= 1" + "0" * 400, NOT_FINITE),
        ("1e-300*a <= 1e300", NOT_FINITE),
        ("a/0 <= 1", f"{NOT_FINITE}.*'a / 0' divides by zero"),
        ("c <= 1", "got 'c <= 1' with the name 'c'. The outcomes are 'a' and 'b'"),
    ],
)
def test_bad_text_is_refused_with_its_reason(text, message):
    with pytest.raises(RegionError, match=f"(?s){message}"):
        region(text)


def test_an_unknown_name_gets_the_nearest_outcome():
    with pytest.raises(RegionError, match="Did you mean 'repayment_rate'"):
        Polytope.parse(["repayment_rat >= 0.6"], ["repayment_rate", "roi"])


@pytest.mark.parametrize("name", ["FPG (mg/dL)", "debt to income", "x-1", "2y"])
def test_a_name_that_lacks_its_backticks_is_shown_with_them(name):
    with pytest.raises(RegionError, match=f"in backticks: `{re.escape(name)}`\\."):
        Polytope.parse([f"{name} < 100"], [name])


def test_outcomes_are_listed_as_they_are_to_be_written():
    with pytest.raises(RegionError, match="The outcomes are 'a' and '`b c`'"):
        Polytope.parse(["d < 100"], ["a", "b c"])


@given(text=st.text(alphabet="ab01.e+-*/()<>=! `,;#\\'\"[]{}:@%&|^~\nλ²", max_size=20))
@example("a\\\n<= 1")
@example("a:=1 <= 2")
def test_any_text_is_read_or_refused_as_a_region_error(text):
    try:
        rows = region(text)
    except RegionError as error:
        message = str(error)
        assert repr(text) in message
    else:
        assert np.isfinite(rows.normals).all()


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([], "Expected at least one constraint; got an empty list"),
        (["a <= 1", 2], "Expected each constraint as text; got 2, a int"),
        ("a <= 1", "Expected a list of constraints; got 'a <= 1'"),
    ],
)
def test_constraints_come_as_a_list_of_texts(constraints, message):
    with pytest.raises(RegionError, match=message):
        Polytope.parse(constraints, ["a"])


# Arrays


@given(
    M=arrays(float, (3, 2), elements=FLOATS),
    b=arrays(float, 3, elements=st.floats(-1e6, 1e6)),
)
def test_rows_have_unit_length_whatever_the_units(M, b):
    assume((np.abs(M).max(axis=1) > 1e-290).all())
    rows = Polytope(M, b)
    np.testing.assert_allclose(np.linalg.norm(rows.normals, axis=1), 1.0, rtol=1e-14)


@given(
    M=arrays(float, (3, 2), elements=MODERATE),
    b=arrays(float, 3, elements=MODERATE),
    factors=arrays(float, 3, elements=st.floats(0.01, 100)),
    y=arrays(float, (5, 2), elements=MODERATE),
)
def test_scaling_a_row_changes_no_slack_and_no_membership(M, b, factors, y):
    assume(M.any(axis=1).all())
    before, after = Polytope(M, b), Polytope(M * factors[:, None], b * factors)
    np.testing.assert_allclose(after.slack(y), before.slack(y), atol=1e-9)
    clear = (np.abs(before.slack(y)) > 1e-9).all(axis=1)
    assert (before.contains(y) == after.contains(y))[clear].all()


def test_arrays_are_copied_and_read_only():
    M, b = np.array([[2.0, 0.0]]), np.array([1.0])
    rows = Polytope(M, b)
    M[0, 0] = 7.0
    assert rows.offsets.tolist() == [0.5]
    for array in (rows.normals, rows.offsets, rows.strict):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_lists_and_defaults_are_enough():
    rows = Polytope.from_arrays([[3, 4], [-1, 0]], [10, -2])
    assert rows.names == ("y1", "y2")
    assert rows.texts == ("3*y1 + 4*y2 <= 10", "y1 >= 2")
    assert rows.normals.tolist() == [[0.6, 0.8], [-1.0, 0.0]]
    assert rows.offsets.tolist() == [2.0, -2.0]
    assert (len(rows), rows.dim) == (2, 2)


def test_a_region_prints_as_its_constraints():
    names = ("repayment_rate", "roi")
    rows = region("repayment_rate >= 0.6", "0.3 <= roi <= 1", names=names)
    assert str(rows) == "repayment_rate >= 0.6 and 0.3 <= roi <= 1"


def test_a_region_survives_pickling():
    rows = region("a <= b", "a < 3")
    copy = pickle.loads(pickle.dumps(rows))
    y = np.array([[1.0, 1.0], [3.0, 4.0], [2.0, 1.0]])
    assert copy.contains(y).tolist() == rows.contains(y).tolist()
    assert str(copy) == str(rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0, 0.0]], [1.0]), "got only zeros in row 0 \\(offset 1.0\\)"),
        (([[1.0, 0.0]], [1.0, 2.0]), "got \\(1, 2\\) and \\(2,\\)"),
        (([1.0], [1.0]), "got \\(1,\\) and \\(1,\\)"),
        ((np.zeros((0, 2)), []), "l and d at least 1; got \\(0, 2\\)"),
        (([[1.0], [np.nan]], [1.0, 2.0]), "got \\[nan\\] and 2.0 in row 1"),
        (([[1.0]], [np.inf]), "Leave out a constraint whose bound is infinite"),
        (([["a"]], [1.0]), "Expected normals and offsets as arrays of numbers"),
        (([[1.0, 2.0], [1.0]], [1.0, 2.0]), "arrays of numbers"),
        (([[1e-300]], [1e300]), "a bound beyond all floats"),
        (([[1.0]], [1.0], ["a", "b"]), "Expected 1 different names.*'a' and 'b'"),
        (([[1.0, 2.0]], [1.0], ["a", "a"]), "Expected 2 different names"),
        (([[1.0]], [1.0], ["a"], [True, False]), "Expected an entry of strict"),
    ],
)
def test_bad_arrays_are_refused_with_their_row(arguments, message):
    with pytest.raises(RegionError, match=message):
        Polytope.from_arrays(*arguments)


# Membership


def beside(bound: float) -> np.ndarray:
    """The bound, its neighbours among the floats, and points further off."""
    near = [math.nextafter(bound, -math.inf), bound, math.nextafter(bound, math.inf)]
    far = [bound - 1.0, bound + 1.0, -bound, 0.0]
    return column(*(v for v in near + far if math.isfinite(v)))


@given(bound=FLOATS, op=OPS)
@example(bound=0.3, op="<=")
@example(bound=-0.0, op="<")
@example(bound=5e-324, op="<")
@example(bound=1.7976931348623157e308, op=">=")
def test_a_single_outcome_is_compared_with_its_bound_exactly(bound, op):
    y = beside(bound)
    expected = COMPARE[op](y[:, 0], bound)
    rows = region(f"y {op} {bound!r}", names=("y",))
    np.testing.assert_array_equal(rows.contains(y), expected)
    padded = np.column_stack([np.full(len(y), 1e17), y, np.full(len(y), -0.1)])
    wide = region(f"{bound!r} {FLIPPED[op]} y", names=("x", "y", "z"))
    np.testing.assert_array_equal(wide.contains(padded), expected)


FLIPPED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}


@given(bound=st.integers(-10_000, 10_000), factor=st.integers(1, 1000), op=OPS)
def test_a_factor_on_both_sides_leaves_decimal_bounds_where_they_are(bound, factor, op):
    """``3*y <= 0.9`` is ``y <= 0.3``, as decimals are and floats are not."""
    written, scaled = f"{bound}e-3", f"{bound * factor}e-3"
    y = beside(bound / 1000)
    expected = COMPARE[op](y[:, 0], float(written))
    for text in (f"{factor}*y {op} {scaled}", f"y/{factor} {op} {written}/{factor}"):
        np.testing.assert_array_equal(region(text, names=("y",)).contains(y), expected)


@given(
    factor=st.integers(1, 9),
    steps=st.integers(-5000, 5000),
    strict=st.booleans(),
)
def test_arrays_judge_a_single_outcome_as_text_does(factor, steps, strict):
    M, b = [[float(factor)]], [factor * steps / 1000]
    op = "<" if strict else "<="
    text = region(f"{factor}*y {op} {b[0]!r}", names=("y",))
    y = beside(steps / 1000)
    made = Polytope.from_arrays(M, b, strict=[strict])
    np.testing.assert_array_equal(made.contains(y), text.contains(y))


def test_strict_and_loose_bounds_differ_on_the_boundary_only():
    y = column(99.0, 100.0, 101.0)
    names = ("FPG",)
    assert region("FPG < 100", names=names).contains(y).tolist() == [True, False, False]
    assert region("FPG <= 100", names=names).contains(y).tolist() == [True, True, False]


@given(v=arrays(float, 8, elements=FLOATS))
def test_equal_outcomes_satisfy_a_loose_and_break_a_strict_comparison(v):
    y = np.column_stack([v, v])
    assert region("a <= b", "a >= b").contains(y).all()
    assert not region("a < b").contains(y).any()


@given(y=arrays(float, (6, 2), elements=st.integers(-30, 30).map(float)))
def test_decimal_weights_are_exact_on_whole_numbers(y):
    total = y[:, 0] + 2 * y[:, 1]
    inside = region("0.1*a + 0.2*b <= 0.3").contains(y)
    np.testing.assert_array_equal(inside, total <= 3)


@given(
    y=arrays(float, (6, 2), elements=MODERATE),
    mean=arrays(float, 2, elements=MODERATE),
    scale=arrays(float, 2, elements=st.floats(0.01, 100)),
)
def test_standardising_preserves_membership_and_unit_rows(y, mean, scale):
    rows = region("0.5*a + b <= 2", "a > -20", "b <= 3*a + 7")
    z_rows = rows.standardised(mean, scale)
    z = (y - mean) / scale
    np.testing.assert_allclose(np.linalg.norm(z_rows.normals, axis=1), 1.0)
    assert (np.sign(z_rows.slack(z)) == np.sign(rows.slack(y)))[clear(rows, y)].all()
    off = clear(rows, y).all(axis=1)
    assert (z_rows.contains(z) == rows.contains(y))[off].all()
    assert z_rows.strict.tolist() == rows.strict.tolist()
    assert z_rows.texts == rows.texts


def clear(rows: Polytope, y: np.ndarray) -> np.ndarray:
    return np.abs(rows.slack(y)) > 1e-9


def test_slack_is_the_distance_to_each_boundary():
    rows = region("3*a + 4*b <= 10", "a >= 0")
    slack = rows.slack(np.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 7.0]]))
    np.testing.assert_allclose(slack, [[2.0, 0.0], [0.0, 2.0], [-3.0, -1.0]])


def test_a_batch_of_any_shape_is_judged_like_its_rows(rng):
    rows, y = region("a <= b", "a >= -1"), rng.normal(size=(3, 4, 2))
    w = ProbitDesirability(rows)
    flat = y.reshape(-1, 2)
    np.testing.assert_array_equal(rows.contains(y).ravel(), rows.contains(flat))
    np.testing.assert_allclose(w(y).ravel(), w(flat))


# Interior


@pytest.mark.parametrize(
    "constraints",
    [
        ["a <= 1"],
        ["a >= 1", "b >= 1"],
        ["a >= 1", "a <= 1.0000001"],
        ["a >= 1e-9", "a <= 2e-9", "a <= b", "b <= 3e-9"],
        ["a >= 1e6", "a <= 1000000.001", "a <= b"],
        ["a - b >= 1e-8", "a - b <= 2e-8"],
        ["a + b >= 1e9", "a + b <= 1.001e9"],
        ["a <= 1e7", "b >= 0.002", "a >= 1e9*b"],
        ["a < b", "b < a + 1e-6", "0 < a < 1"],
    ],
)
def test_a_region_with_an_interior_passes_at_any_scale(constraints):
    rows = region(*constraints)
    assert rows.require_interior() is None


@pytest.mark.parametrize("scale", ["1e-6", "1", "1e6"])
@pytest.mark.parametrize(
    ("constraints", "named"),
    [
        (["a >= 2*{s}", "b >= 0", "a <= 1*{s}"], [0, 2]),
        (["a >= 1*{s}", "a <= 1*{s}", "b <= 1*{s}"], [0, 1]),
        (["b <= {s}", "a + b >= 2*{s}", "a <= {s}", "a >= -{s}"], [0, 1, 2]),
        (["a - b >= 2*{s}", "b <= 7*{s}", "a <= b + {s}"], [0, 2]),
        (["a < b", "b < a"], [0, 1]),
    ],
)
def test_contradicting_constraints_are_named_and_no_others(constraints, named, scale):
    texts = [text.format(s=scale) for text in constraints]
    with pytest.raises(RegionError, match="with an interior") as raised:
        region(*texts).require_interior()
    message = str(raised.value)
    assert [k for k, text in enumerate(texts) if repr(text) in message] == named


def test_the_message_of_a_contradiction_reads_as_a_sentence():
    with pytest.raises(RegionError) as raised:
        region("y >= 2", "y <= 1", names=("y",)).require_interior()
    assert str(raised.value) == (
        "Expected a desired region with an interior; got constraints that exclude "
        "each other: 'y >= 2' and 'y <= 1'. Relax one of them."
    )


def test_a_chain_that_excludes_itself_is_named_once():
    with pytest.raises(RegionError) as raised:
        region("b >= 0", "2 <= a <= 1").require_interior()
    assert str(raised.value) == (
        "Expected a desired region with an interior; got a constraint that excludes "
        "itself: '2 <= a <= 1'. Relax it."
    )


@settings(max_examples=30)
@given(
    M=arrays(float, (6, 2), elements=MODERATE),
    slack=arrays(float, 6, elements=st.floats(0.01, 10)),
    centre=arrays(float, 2, elements=MODERATE),
)
def test_a_region_around_a_ball_has_an_interior(M, slack, centre):
    length = np.linalg.norm(M, axis=1)
    assume((length > 0.1).all())
    assert Polytope(M, M @ centre + slack * length).require_interior() is None


@settings(max_examples=30)
@given(
    M=arrays(float, (3, 2), elements=MODERATE),
    weights=arrays(float, 3, elements=st.floats(0.1, 10)),
    offsets=arrays(float, 3, elements=MODERATE),
)
def test_rows_whose_positive_sum_is_impossible_contradict(M, weights, offsets):
    """Farkas: a row that is minus the others' sum, with a bound below theirs."""
    last = -(weights @ M)
    assume((np.abs(M).max(axis=1) > 0.1).all())
    assume(np.abs(last).max() > 0.1)
    bound = -(weights @ offsets) - 1.0
    rows = Polytope(np.vstack([M, last]), np.append(offsets, bound))
    with pytest.raises(RegionError, match="exclude each other"):
        rows.require_interior()


# The probit


BOX = region("0 <= a <= 1", "a + b <= 1.5")


@given(y=arrays(float, (6, 2), elements=st.floats(-1e6, 1e6)), eta=st.floats(0.1, 1e3))
def test_the_probit_is_a_probability(y, eta):
    w = ProbitDesirability(BOX, eta)(y)
    assert ((w >= 0) & (w <= 1)).all()


@given(y=arrays(float, 2, elements=st.floats(-3, 3)), step=st.floats(0, 5))
def test_the_probit_grows_with_every_slack(y, step):
    tight, loose = region("a <= 1", "b <= 1"), ProbitDesirability(region("a <= 1"))
    w = ProbitDesirability(tight)
    lower = y - np.array([step, 0.0])
    assert w(lower[None])[0] >= w(y[None])[0]
    assert loose(y[None])[0] >= w(y[None])[0]


@given(y=arrays(float, (6, 2), elements=st.floats(-3, 3)))
def test_the_hard_indicator_is_the_limit_of_the_probit(y):
    off = np.abs(BOX.slack(y)).min(axis=1) > 1e-3
    hard = ProbitDesirability(BOX).indicator(y)
    assert set(hard) <= {0.0, 1.0}
    gaps = [np.abs(ProbitDesirability(BOX, eta)(y) - hard)[off] for eta in (1e3, 1e5)]
    assert (gaps[1] <= gaps[0] + 1e-12).all()
    assert (gaps[1] < 1e-12).all()


def test_the_probit_is_the_product_of_the_printed_formula():
    y = np.array([[0.3, 0.2], [0.9, 1.0], [-0.2, 0.1]])
    phi = np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2)))
    expected = phi(5.0 * BOX.slack(y)).prod(axis=1)
    np.testing.assert_allclose(ProbitDesirability(BOX, 5.0)(y), expected, rtol=1e-12)


def test_many_small_factors_do_not_become_nan():
    rows = Polytope(np.eye(50), np.zeros(50))
    w = ProbitDesirability(rows, 20.0)(np.full((1, 50), 30.0))
    assert w.tolist() == [0.0]


@pytest.mark.parametrize("sharpness", [0.0, -1.0, np.inf, np.nan])
def test_the_sharpness_is_positive_and_finite(sharpness):
    with pytest.raises(SpecError, match="Expected a positive and finite sharpness"):
        ProbitDesirability(BOX, sharpness)


@given(y=arrays(float, (20, 2), elements=st.integers(-5, 5).map(float)))
def test_one_constraint_is_judged_as_it_is_within_the_region(y):
    texts = ["0.1*a + 0.3*b <= 0.7", "-1 <= a < 3", "a + b > -4"]
    region = Polytope.parse(texts, ["a", "b"])
    parts = [region.only(text) for text in texts]
    assert [len(part) for part in parts] == [1, 2, 1]
    assert [str(part) for part in parts] == texts
    together = np.all([part.contains(y) for part in parts], axis=0)
    np.testing.assert_array_equal(together, region.contains(y))
    slacks = np.concatenate([part.slack(y) for part in parts], axis=1)
    np.testing.assert_allclose(slacks, region.slack(y), atol=1e-12)


def test_what_is_taken_from_a_region_is_read_only_and_survives_pickling():
    region = Polytope.parse(["a <= 1", "b <= 2"], ["a", "b"])
    taken = pickle.loads(pickle.dumps(region.over(["b", "a"])))
    assert taken.normals.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    for part in (region.over(["b", "a"]), region.only("a <= 1")):
        assert not part.normals.flags.writeable
        assert not part.offsets.flags.writeable


def test_region_errors_belong_to_the_one_tree():
    assert issubclass(RegionError, ForestallError)
    assert issubclass(RegionError, ValueError)
