"""The figures of a report, as pictures that stand inside the page.

None of them shows a record: landscapes and clouds are computed from what was learned,
overlap and calibration stand for groups of records.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forestall import ink, plots, views
from forestall.decisions import Decision
from forestall.diagnostics import contexts_at
from forestall.errors import ForestallError
from forestall.method import Policy
from forestall.observations import Observations
from forestall.rehearsal import Rehearsal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Text stays text, so that the reader's fonts write what ours cannot; and the same
# figure gives the same bytes.
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "forestall"}
NO_DATE = {"Date": None, "Creator": None, "Format": None, "Type": None}
NO_MECHANISMS = (
    "This method learns no mechanism for each variable, so it cannot simulate "
    "outcomes; StagedRehearsal does."
)
NO_RECORDS = "This policy keeps no records, so that nothing can be compared with them."


@dataclass(frozen=True)
class Picture:
    """A figure to put into the page, or why it is left out.

    Args:
        title: What it shows.
        caption: How to read it.
        source: A ``data:`` address of the picture; empty where it is left out.
        missing: Why it is left out; empty where it is not.
    """

    title: str
    caption: str
    source: str = ""
    missing: str = ""


def of_case(policy: Policy, contexts: Any, row: int, advice: Decision) -> list[Picture]:
    """Draw the landscape of one case, and what comes of it without and with action.

    Args:
        policy: The policy.
        contexts: The contexts that it was asked about.
        row: Which of them.
        advice: What it said.
    """
    x = policy.schema.encode_contexts(contexts).x[[row]]
    context = contexts_at(policy.schema, x)
    return [_landscape(policy, context, advice), _cloud(policy, context, advice)]


def of_policy(policy: Policy) -> list[Picture]:
    """Draw how freely history varied each action, and how well the policy fits."""
    calibration = Picture(
        "Calibration",
        "The closer to the diagonal, the better what was learned agrees with records "
        "that were left out. A dot or a bend stands for a tenth of them.",
    )
    if not isinstance(getattr(policy, "data", None), Observations):
        about = Picture("Overlap", "")
        return [_without(each, NO_RECORDS) for each in (about, calibration)]
    overlaps = [_overlap(policy, name) for name in policy.problem.actions]
    return [*overlaps, _drawn(calibration, lambda: _calibration(policy))]


def _landscape(policy: Policy, context: Any, advice: Decision) -> Picture:
    about = Picture(
        "Chance of a good outcome by action",
        "Hatched: history has hardly any record like this, so the curve is a guess.",
    )
    names = list(advice.actions)[:2]
    if len(advice.actions) < len(policy.problem.actions):
        kept = "Some actions keep their natural course here, which is no single value."
        return _without(about, kept)
    return _drawn(about, lambda: views.landscape(policy, context, names))


def _cloud(policy: Policy, context: Any, advice: Decision) -> Picture:
    about = Picture(
        "Outcomes without action and with it",
        "Simulated from what was learned: no dot is a record, and shares of so few "
        "dots differ a little from the chances above.",
    )
    if not isinstance(getattr(policy, "system", None), Rehearsal):
        return _without(about, NO_MECHANISMS)
    actions = advice.actions
    return _drawn(
        about, lambda: plots.before_after(policy, context, actions, ax=_panel())
    )


def _overlap(policy: Policy, name: str) -> Picture:
    about = Picture(
        f"Overlap: {ink.words(name)}",
        "How far history strayed from what was usual. Each part of the band stands for "
        f"{views.TOGETHER} records at least.",
    )
    return _drawn(about, lambda: views.overlap(policy, name, ax=_panel()))


def _panel() -> Axes:
    return ink.panels(1, width=5.2, height=4.6).axes[0]


def _calibration(policy: Policy) -> Axes:
    axes = views.calibration(policy, ax=_panel())
    for line in axes.lines:
        x, y = (np.asarray(v) for v in line.get_data())
        # A fine line would show the level of every single record.
        step = max(1, (len(x) - 1) // 10)
        line.set_data(x[::step], y[::step])
    return axes


def _drawn(about: Picture, draw: Callable[[], Axes]) -> Picture:
    """Draw it; where the policy cannot, say why."""
    try:
        with warnings.catch_warnings():
            # The decisions have warned already, and a missing glyph is the reader's.
            warnings.simplefilter("ignore")
            figure = draw().figure
            return Picture(about.title, about.caption, _address(figure))
    except ForestallError as error:
        return _without(about, str(error))


def _without(about: Picture, why: str) -> Picture:
    return Picture(about.title, "", missing=why)


def _address(figure: Any) -> str:
    """Write a figure as SVG, and that as the address of an image.

    As an image it runs no script and fetches nothing, whatever a name in it says.
    """
    matplotlib = ink.matplotlib()
    for text in figure.findobj(matplotlib.text.Text):
        # A name may hold dollar signs.
        text.set_parse_math(False)
    written = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(written, format="svg", metadata=NO_DATE)
    encoded = base64.b64encode(written.getvalue()).decode("ascii")
    return f"data:image/svg+xml;base64,{encoded}"
