"""The lending story: one applicant, two estimators, and the truth beside them.

A bank sets interest rates. Industry stability, which it cannot set, moves both the rate
that was asked in the past and how the loan went. An estimator that does not adjust for
it mistakes the one for the other. This world is simulated, so we can say by how much.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from forestall import plots, tasks
from forestall.arrays import Array
from forestall.ascent import Ascent
from forestall.conditional import ConditionalRehearsal
from forestall.decisions import Decisions
from forestall.files import write_text
from forestall.nested import KernelPolicy, NestedRehearsal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forestall.tasks.task import Task

ACTION = "interest_rate"
RECORDS = 1_000
DRAWS = 20_000
POOL = 64
PAPER_NO_ACTION = 0.664
# Step by step, as the paper climbs: where the confounded estimator ends depends on it.
PLAIN = Ascent(stride=1)

Progress = Callable[[str], object]


def _say_nothing(text: str) -> None:
    del text


@dataclass(frozen=True)
class Option:
    """One thing that can be done for the applicant.

    Args:
        name: Who proposes it.
        action: The interest rate; None leaves it to come about as it used to.
        estimate: The probability of a good outcome that the proposer believes in.
        success: The true probability.
    """

    name: str
    action: float | None
    estimate: float | None
    success: float


@dataclass(frozen=True)
class Advice:
    """A decision for one applicant, beside the truth."""

    context: dict[str, float]
    action: float
    probability: float
    lower: float
    upper: float
    no_action: float
    verdict: str
    success: float
    success_without: float
    sentence: str


@dataclass(frozen=True)
class StudyRow:
    r"""True probabilities under both estimators' actions, at one smoothing.

    Args:
        bandwidth: Kernel widths as a multiple of the median distance.
        sharpness: The parameter :math:`\eta`.
        nested: Mean over histories under the nested estimator's action.
        single: Mean under the single estimator's action.
        no_action: Without action.
        below: The share of histories in which the single estimator's action is worse
            than none.
        histories: How many histories.
    """

    bandwidth: float
    sharpness: float
    nested: float
    single: float
    no_action: float
    below: float
    histories: int


# Seeds 0 to 9, for the sentence of a plain run; a test computes them anew.
STUDIED = (
    StudyRow(1.0, 5.0, 0.835, 0.672, 0.667, 0.2, 10),
    StudyRow(1.0, 10.0, 0.839, 0.632, 0.667, 0.3, 10),
    StudyRow(1.0, 20.0, 0.839, 0.633, 0.667, 0.3, 10),
    StudyRow(4.0, 5.0, 0.816, 0.479, 0.667, 1.0, 10),
    StudyRow(4.0, 10.0, 0.815, 0.485, 0.667, 1.0, 10),
    StudyRow(4.0, 20.0, 0.816, 0.487, 0.667, 1.0, 10),
)


def smoothing_text(here: Sequence[StudyRow]) -> str:
    """Say under which smoothing the single estimator's action is worse than none.

    Args:
        here: A study of one history.
    """
    worse = sum(row.below > 0 for row in here)
    widths = dict.fromkeys(row.bandwidth for row in STUDIED)
    told = [_width_text([r for r in STUDIED if r.bandwidth == w]) for w in widths]
    return (
        f"On this history the single estimator's action is worse than none at {worse} "
        f"of {len(here)} smoothings. Over {STUDIED[0].histories} histories it is "
        f"{', and '.join(told)}; without action it is {STUDIED[0].no_action:.0%}. On "
        f"average it loses to the nested one at each of these; below no action it "
        f"falls reliably only under strong smoothing, which gives about what the "
        f"paper's figure shows (66.4 % without action, 47.3 % single, 87.5 % nested). "
        f"To compute this anew: forestall demo --study"
    )


def _width_text(rows: Sequence[StudyRow]) -> str:
    etas = ", ".join(f"{row.sharpness:g}" for row in rows)
    times = ", ".join(f"{row.below * row.histories:.0f}" for row in rows)
    single = np.mean([row.single for row in rows])
    nested = np.mean([row.nested for row in rows])
    width = rows[0].bandwidth
    kernels = "kernels of median width" if width == 1 else f"{width:g} times that width"
    return (
        f"worse in {times} of them at eta {etas} with {kernels} (true probability "
        f"{single:.0%} on average, nested {nested:.0%})"
    )


@dataclass(frozen=True, eq=False)
class Story:
    """Everything that the demo tells.

    Args:
        seed: Which history.
        applicant: The example applicant's context.
        options: No action, the single estimator's action, the nested one's, the best.
        smoothing: Both estimators on this history under several smoothings.
        advice: Decisions for further applicants.
        policies: The fitted single and nested estimators.
    """

    seed: int
    applicant: dict[str, float]
    options: tuple[Option, Option, Option, Option]
    smoothing: tuple[StudyRow, ...]
    advice: tuple[Advice, ...]
    policies: tuple[KernelPolicy, KernelPolicy]

    @property
    def sentence(self) -> str:
        """The nested estimator's decision for the example applicant, in words."""
        return str(self.policies[1].recommend(self.applicant)[0])

    def to_dict(self) -> dict[str, Any]:
        """Give the numbers as plain lists, numbers and text."""
        return {
            "seed": self.seed,
            "records": RECORDS,
            "applicant": self.applicant,
            "sharpness": self.policies[1].solution.sharpness,
            "options": [asdict(option) for option in self.options],
            "sentence": self.sentence,
            "smoothing": [asdict(row) for row in self.smoothing],
            "studied": [asdict(row) for row in STUDIED],
            "applicants": [asdict(advice) for advice in self.advice],
        }


def bank() -> Task:
    """The task that the story plays in."""
    return tasks.get("bank")


@cache
def _applicant() -> tuple[tuple[str, float], ...]:
    pool = _rows(bank().contexts(POOL, seed=0))
    chosen = min(pool, key=lambda x: abs(success(x, None) - PAPER_NO_ACTION))
    return tuple(chosen.items())


def applicant() -> dict[str, float]:
    """Find the example applicant: whose probability without action is the paper's.

    It is the nearest to 66.4 % among 64 applicants, by the truth.
    """
    return dict(_applicant())


def success(context: Mapping[str, float], rate: float | None) -> float:
    """Compute the true probability of a good loan at a rate, or without action."""
    # One seed for all: every option meets the same draws.
    return bank().success(context, None if rate is None else {ACTION: rate}, DRAWS, 1)


def tell(seed: int, progress: Progress = _say_nothing) -> Story:
    """Fit on one history and compare, for one applicant and for a handful more.

    Args:
        seed: Which history, and which further applicants.
        progress: Told what is being done.
    """
    progress(f"Fitting both estimators on {RECORDS:,} records")
    history = bank().history(RECORDS, seed)
    single = ConditionalRehearsal(ascent=PLAIN).fit(bank().problem, history)
    nested = NestedRehearsal(ascent=PLAIN).fit(bank().problem, history)
    progress("Asking the truth what would come of it")
    x = applicant()
    options = _options(x, single, nested)
    progress("Smoothing more and less")
    smoothing = lending_study([seed], (1.0, 5.0, 10.0, 20.0), (1.0, 4.0))
    progress("Deciding for a handful of applicants")
    others = _rows(bank().contexts(6, seed))
    advice = tuple(_advice(row, nested) for row in others)
    return Story(seed, x, options, smoothing, advice, (single, nested))


def lending_study(
    seeds: Sequence[int],
    sharpness: Sequence[float],
    bandwidth: Sequence[float] = (1.0,),
    progress: Progress = _say_nothing,
) -> tuple[StudyRow, ...]:
    """Compare both estimators for the example applicant over many histories.

    Args:
        seeds: One history each.
        sharpness: Which eta to try.
        bandwidth: Which multiples of the median distance to try.
        progress: Told about every history and width.
    """
    x = applicant()
    without = success(x, None)
    rows = []
    for width in bandwidth:
        found = []
        for seed in seeds:
            found.append(_trial(x, bank().history(RECORDS, seed), sharpness, width))
            progress(f"widths x {width:g}, history {seed}")
        rows += _rows_of_study(np.array(found), sharpness, width, without)
    return tuple(rows)


def _rows_of_study(
    found: Float[Array, "seeds 2 etas"],
    sharpness: Sequence[float],
    width: float,
    without: float,
) -> list[StudyRow]:
    single, nested = found[:, 0], found[:, 1]
    return [
        StudyRow(
            float(width),
            float(eta),
            float(nested[:, k].mean()),
            float(single[:, k].mean()),
            without,
            float((single[:, k] < without).mean()),
            len(found),
        )
        for k, eta in enumerate(sharpness)
    ]


def _trial(
    x: Mapping[str, float], history: Any, sharpness: Sequence[float], width: float
) -> list[list[float]]:
    """True probabilities on one history, a row for each estimator."""
    found = []
    for method in (ConditionalRehearsal, NestedRehearsal):
        policy = method(bandwidth=width, ascent=PLAIN).fit(bank().problem, history)
        chosen = (_rate(sharpened(policy, eta).recommend(x)) for eta in sharpness)
        found.append([success(x, rate) for rate in chosen])
    return found


def sharpened(policy: KernelPolicy, eta: float) -> KernelPolicy:
    """Ask with another eta: one more solve, not another fit."""
    method = replace(policy.method, sharpness=eta)
    return replace(policy, method=method).for_region(policy.problem.desired)


def _options(
    x: dict[str, float], single: KernelPolicy, nested: KernelPolicy
) -> tuple[Option, Option, Option, Option]:
    told = [policy.recommend(x) for policy in (single, nested)]
    confounded, adjusted = (
        Option(name, _rate(d), float(d.probability[0]), success(x, _rate(d)))
        for name, d in zip(("single estimator", "nested estimator"), told, strict=True)
    )
    without = Option("no action", None, float(told[1].no_action[0]), success(x, None))
    best = bank().oracle(x)[0][ACTION]
    return without, confounded, adjusted, Option("oracle", best, None, success(x, best))


def _advice(x: dict[str, float], policy: KernelPolicy) -> Advice:
    decision = policy.recommend(x)[0]
    rate = decision.actions[ACTION]
    return Advice(
        x,
        rate,
        decision.probability,
        decision.lower,
        decision.upper,
        decision.no_action,
        decision.verdict,
        success(x, rate),
        success(x, None),
        str(decision),
    )


def _rate(decisions: Decisions) -> float:
    return float(decisions.actions[0, 0])


def _rows(table: Mapping[str, Array]) -> list[dict[str, float]]:
    n = len(next(iter(table.values())))
    return [{name: float(v[i]) for name, v in table.items()} for i in range(n)]


@dataclass(frozen=True, eq=False)
class Landscape:
    """What both estimators and the truth say of every rate, for one applicant."""

    rate: Float[Array, " m"]
    single: Float[Array, " m"]
    nested: Float[Array, " m"]
    truth: Float[Array, " m"]

    @staticmethod
    def of(story: Story, m: int = 201) -> Landscape:
        """Evaluate both objectives and the truth on a grid of rates."""
        lower, upper = bank().problem.actions[ACTION]
        rate = np.linspace(lower, upper, m)
        x = {name: np.full(m, value) for name, value in story.applicant.items()}
        told = [policy.objective(x, rate[:, None]) for policy in story.policies]
        truth = bank().successes(story.applicant, rate[:, None], DRAWS, seed=1)
        return Landscape(rate, told[0], told[1], truth)


def figure(story: Story) -> Figure:
    """Draw the paper's panels: without action, the objectives, what comes of them."""
    without, single, nested, _ = story.options
    region = bank().problem.region
    before = [_cloud(story, without, "no action", 700)]
    after = [_cloud(story, single, "single", 350), _cloud(story, nested, "nested", 350)]
    limits = plots.limits_of(region, before + after)
    made = plots.panels(3)
    left, middle, right = made.axes
    plots.outcomes(left, region, before, limits).set_title("Without action")
    _draw_landscape(middle, story)
    plots.outcomes(right, region, after, limits).set_title("Under either advice")
    return made


def _draw_landscape(axes: Any, story: Story) -> None:
    _, single, nested, best = story.options
    land = Landscape.of(story)
    lines = [
        _curve(single, land, land.single, "single"),
        _curve(nested, land, land.nested, "nested"),
        _curve(best, land, land.truth, "truth"),
    ]
    plots.curves(axes, land.rate, lines)
    axes.set_title("What each estimator sees")
    axes.set_xlabel("interest rate")
    axes.set_ylabel("probability of a good loan")


def _curve(option: Option, land: Landscape, values: Array, colour: str) -> plots.Curve:
    assert option.action is not None, "only no action has none"
    peak = option.action, float(np.interp(option.action, land.rate, values))
    name = "truth" if option.name == "oracle" else option.name
    label = f"{name}, best at {option.action:.2f}"
    return plots.Curve(label, values, colour, dashed=colour == "truth", peak=peak)


def _cloud(story: Story, option: Option, colour: str, n: int) -> plots.Cloud:
    do = {} if option.action is None else {ACTION: option.action}
    rng = np.random.default_rng(story.seed)
    values = bank().model.sample(n, rng, do=do, given=story.applicant)
    points = np.column_stack([values[name] for name in bank().problem.outcomes])
    rate = "" if option.action is None else f", rate {option.action:.2f}"
    return plots.Cloud(option.name + rate, points, option.success, colour)


def save(story: Story, folder: Path, *, draw: bool = True) -> list[Path]:
    """Write the numbers, and the figure unless told otherwise; say which files."""
    written = [
        write_text(
            folder / "lending.json", json.dumps(story.to_dict(), indent=2) + "\n"
        ),
        write_text(folder / "applicants.csv", _csv(map(_flat, story.advice))),
        write_text(folder / "landscape.csv", _csv(_grid_rows(Landscape.of(story)))),
    ]
    if draw:
        picture = folder / "lending.png"
        figure(story).savefig(picture)
        written.insert(0, picture)
    return written


def save_study(rows: Iterable[StudyRow], folder: Path) -> Path:
    """Write the rows of a study as a CSV file."""
    return write_text(folder / "study.csv", _csv(map(asdict, rows)))


def _flat(advice: Advice) -> dict[str, Any]:
    rest = asdict(advice)
    return {**rest.pop("context"), **rest}


def _grid_rows(land: Landscape) -> list[dict[str, float]]:
    return _rows({field.name: getattr(land, field.name) for field in fields(land)})


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    first, *rest = rows
    text = io.StringIO()
    writer = csv.DictWriter(text, list(first), lineterminator="\n")
    writer.writeheader()
    writer.writerows([first, *rest])
    return text.getvalue()
