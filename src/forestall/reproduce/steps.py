"""Every table and figure of the paper, each by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from forestall.bench import Plan
from forestall.bench import run as run_plan
from forestall.errors import PlanError, nearest
from forestall.files import write_text
from forestall.reproduce import plans, subsets
from forestall.reproduce.places import Places

Progress = Callable[[str], object]

ALL = "all"


def _say_nothing(text: str) -> None:
    del text


@dataclass(frozen=True)
class Work:
    """What a step is told.

    Args:
        places: Where everything is.
        quick: Whether to take the short versions of the plans.
        jobs: Processes at once.
        fresh: Whether to throw away what is there and begin anew.
        say: Told what is being done.
        bars: Whether benchmarks show how far they are.
    """

    places: Places
    quick: bool
    jobs: int
    fresh: bool
    say: Progress
    bars: bool

    def bench(self, name: str) -> list[Path]:
        """Run a committed plan, or what is missing of it."""
        return [self._bench(plan) for plan in self._read(name)]

    def subsets(self, name: str) -> list[Path]:
        """Run a plan with the subsets of actions in place of its method."""
        return [
            self._bench(subsets.spelt_out(plan, quick=self.quick))
            for plan in self._read(name)
        ]

    def unless_there(
        self, files: Sequence[Path], make: Callable[[], list[Path]]
    ) -> list[Path]:
        """Make files, which are written whole or not at all, unless all are there."""
        if not self.fresh and all(path.exists() for path in files):
            self.say(f"Keeping {files[0].name}, which is there already")
            return []
        return make()

    def _read(self, name: str) -> list[Plan]:
        if not plans.data_are_here():
            self.say(
                "The task nhanes is left out: its data are not here. Get them with "
                "`forestall data fetch nhanes`."
            )
        return plans.read(self.places.plans, name, quick=self.quick)

    def _bench(self, plan: Plan) -> Path:
        self.say(f"Running {plan.name}")
        path = self.places.results / f"{plan.name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        return run_plan(
            plan, path, fresh=self.fresh, jobs=self.jobs, progress=self.bars
        )


def table1(work: Work) -> list[Path]:
    """Run the main table by both protocols."""
    return [*work.bench("table1-paper"), *work.bench("table1")]


def scalability(work: Work) -> list[Path]:
    """Compare exact fits with those of low rank."""
    # Two fits at once would take each other's time, which is what is measured.
    alone = replace(work, jobs=1)
    return [*alone.bench("scalability-1k"), *alone.bench("scalability-5k")]


def eta(work: Work) -> list[Path]:
    """Try several sharpnesses."""
    return work.bench("eta")


def regularisation(work: Work) -> list[Path]:
    """Try several penalties."""
    return work.bench("regularisation")


def altered(work: Work) -> list[Path]:
    """Alter every subset of the actions."""
    return work.subsets("subsets")


def figures(work: Work) -> list[Path]:
    """Draw what needs no results: the lending story, the triangle, the graphs."""
    from forestall.reproduce import pictures

    results, images = work.places.results, work.places.images
    return work.unless_there(
        pictures.files(results, images),
        lambda: pictures.draw(results, images, work.say),
    )


def theory(work: Work) -> list[Path]:
    """Measure what the two theorems bound."""
    from forestall.reproduce import theory as theorems

    folder = work.places.results
    errors = folder / theorems.file_of_errors(quick=work.quick)
    return [
        *work.unless_there(
            [folder / f"{theorems.SURROGATE}.csv"],
            lambda: theorems.measure_gaps(folder, say=work.say),
        ),
        *work.unless_there(
            [errors],
            lambda: theorems.measure_errors(folder, quick=work.quick, say=work.say),
        ),
    ]


def nhanes(work: Work) -> list[Path]:
    """Select the cohort, and compare generated records with it."""
    from forestall.reproduce import survey

    results, images = work.places.results, work.places.images
    return work.unless_there(
        survey.files(results, images),
        lambda: survey.validate(results, images, work.say),
    )


STEPS: dict[str, Callable[[Work], list[Path]]] = {
    "table1": table1,
    "scalability": scalability,
    "eta": eta,
    "regularisation": regularisation,
    "subsets": altered,
    "figures": figures,
    "theory": theory,
    "nhanes": nhanes,
}


def run(
    what: Sequence[str],
    *,
    quick: bool = False,
    jobs: int = 1,
    out: Path | None = None,
    fresh: bool = False,
    progress: Progress = _say_nothing,
    bars: bool = False,
) -> list[Path]:
    """Reproduce tables and figures, and write the page of results anew.

    What was run before is not run again, unless ``fresh`` says so; a run that was
    stopped goes on. Tables, charts and the page are made anew each time.

    Args:
        what: Names of :data:`STEPS`, or ``"all"``.
        quick: Take the short versions of the plans: minutes in place of hours.
        jobs: Processes at once; timings of fits are taken with one whatever this says.
        out: A folder for results, figures and page; by default those of the checkout.
        fresh: Throw away what is there and begin anew.
        progress: Told what is being done.
        bars: Whether benchmarks show how far they are.
    """
    names = _known(what)
    work = Work(Places.of(out), quick, jobs, fresh, progress, bars)
    written = [path for name in names for path in STEPS[name](work)]
    return [*written, *finish(work.places)]


def finish(places: Places) -> list[Path]:
    """Draw what follows from the results, and write the page."""
    from forestall.reproduce import charts
    from forestall.reproduce.page import render

    drawn = charts.draw(places.results, places.images)
    return [*drawn, write_text(places.page, render(places.results))]


def _known(what: Sequence[str]) -> list[str]:
    for name in what:
        if name not in (*STEPS, ALL):
            raise PlanError(
                f"Expected names among {', '.join(STEPS)}, {ALL}; got {name!r}."
                f"{nearest(name, (*STEPS, ALL))}"
            )
    return [name for name in STEPS if name in what or ALL in what]
