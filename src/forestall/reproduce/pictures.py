"""The figures that are drawn from definitions and one history, not from results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forestall import demo, ink, plots, tasks
from forestall.graph import RehearsalGraph
from forestall.problem import Problem
from forestall.reproduce import triangle
from forestall.reproduce.plans import TASKS
from forestall.reproduce.sheet import write_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
LENDING = "lending"
# The paper's drawing is not in its text; this graph has the same parts: a cause of a
# clique of three, and an effect of one member.
CLIQUE = RehearsalGraph(
    [("x", "z1"), ("x", "z2"), ("x", "z3"), ("z3", "y")],
    [("z1", "z2"), ("z1", "z3"), ("z2", "z3")],
)
ALTERED = {"clique": [], "z1": ["z1"], "z1-z3": ["z1", "z3"]}


def draw(
    folder: Path, images: Path, say: Callable[[str], object] = lambda _: None
) -> list[Path]:
    """Draw them all, and write down the numbers in the lending story.

    Args:
        folder: Where the numbers go.
        images: Where the pictures go.
        say: Told what is being done.
    """
    say("Telling the lending story")
    story = demo.tell(0)
    lending, aims, *pictures = files(folder, images)
    drawn = (demo.figure(story), _panel(triangle.draw), _panel(plots.smoothing))
    say("Drawing the graphs")
    made = zip(pictures, (*drawn, *_graphs()), strict=True)
    return [
        write_sheet(lending, list(story.options)),
        write_sheet(aims, _aims()),
        *(save(figure, path) for path, figure in made),
    ]


def files(folder: Path, images: Path) -> list[Path]:
    """What is written, and where, in the order in which it is made."""
    graphs = [*TASKS, *(f"altered-{name}" for name in ALTERED)]
    names = ["lending", "triangle", "smoothing", *(f"graph-{name}" for name in graphs)]
    return [
        folder / f"{LENDING}.csv",
        folder / "triangle.csv",
        *(images / f"{name}.png" for name in names),
    ]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure, of modest size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the version of matplotlib in it, the same figure is the same file.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    return path


def _panel(drawn: Callable[[Any], object]) -> Figure:
    figure = ink.panels(1, width=5.2)
    drawn(figure.axes[0])
    return figure


def _aims() -> list[dict[str, Any]]:
    return [
        {"name": aim.name, "height": aim.height, "success": aim.probability}
        for aim in triangle.AIMS
    ]


def _graphs() -> Iterator[Figure]:
    for name in TASKS:
        problem, graph = graph_of(name)
        yield _closed(graph.draw(roles=roles_of(problem)).figure)
    for altered in ALTERED.values():
        graph = CLIQUE.alter(altered) if altered else CLIQUE
        yield _closed(graph.draw().figure)


def _closed(figure: Figure) -> Figure:
    """Take a figure out of matplotlib's own list, which would keep it for ever."""
    from matplotlib import pyplot

    pyplot.close(figure)
    return figure


def graph_of(name: str) -> tuple[Problem, RehearsalGraph]:
    """The problem and the true graph of a task, without the data it is made of."""
    if name == tasks.FROM_DATA:
        from forestall.tasks.nhanes import ACTIONS, problem_on

        # Only the ranges of the actions come from data, and no graph shows them.
        problem = problem_on({action: np.array([0.0, 1.0]) for action in ACTIONS})
        assert problem.graph is not None, "it is stated with its graph"
        return problem, problem.graph
    task = tasks.get(name)
    return task.problem, task.graph


def roles_of(problem: Problem) -> dict[str, str]:
    """The colour of every variable."""
    return {
        **dict.fromkeys(problem.context, "context"),
        **dict.fromkeys(problem.covariates, "covariate"),
        **dict.fromkeys(problem.actions, "action"),
        **dict.fromkeys(problem.outcomes, "outcome"),
    }
