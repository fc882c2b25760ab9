"""A graph drawn from left to right, one column per tier.

Importing this file needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import networkx as nx

from forestall.errors import GraphError, MissingExtraError, nearest

try:
    from matplotlib import pyplot
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, PathPatch
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D
except ImportError as error:
    raise MissingExtraError("matplotlib", "plots") from error

Pairs = tuple[tuple[str, str], ...]
Groups = tuple[tuple[str, ...], ...]

COLOURS = {
    "context": "#cfe2f3",
    "covariate": "#e7e6e6",
    "action": "#d9ead3",
    "outcome": "#fce5cd",
}
_DARK, _RED = "#444444", "#b03a2e"
_HEIGHT, _PADDING, _ROW, _GAP, _FONT = 24.0, 9.0, 44.0, 64.0, 11.0


@dataclass(frozen=True)
class Scene:
    """What there is to draw.

    Args:
        tiers: The vertices by column, earliest first.
        cliques: Vertices that stay together in their column.
        edges: Directed edges, each to a later tier.
        bidirected_edges: Unordered pairs.
        bidirected: What a bi-directed edge means, ``"mutual"`` or ``"latent"``.
    """

    tiers: Groups
    cliques: Groups
    edges: Pairs
    bidirected_edges: Pairs
    bidirected: str


def draw(scene: Scene, ax: Axes | None, roles: Mapping[str, str]) -> Axes:
    """Draw on the axes, or on those of a new figure of fitting size, and return them.

    Args:
        scene: What there is to draw.
        ax: The axes; None makes new ones.
        roles: Colours by role: name -> a key of :data:`COLOURS`.
    """
    _check_roles(roles)
    # Names are outlines in data units, so that they fit their boxes at any size.
    names = sorted(v for tier in scene.tiers for v in tier)
    texts = {v: TextPath((0, 0), v.replace("$", r"\$"), _FONT) for v in names}
    widths = {v: text.get_extents().width for v, text in texts.items()}
    columns, routes = _layout(scene)
    boxes = _boxes(columns, widths)
    ax = _prepared(ax, boxes)
    for route in routes:
        ax.add_patch(_arrow(_route([boxes[slot] for slot in route])))
    for u, v in scene.bidirected_edges:
        ax.add_patch(_arrow(_arc(boxes[u], boxes[v]), both=True))
    for v, text in texts.items():
        _write(ax, boxes[v], text, COLOURS.get(roles.get(v, ""), "white"))
    _add_legend(scene, ax, roles)
    return ax


def _check_roles(roles: Mapping[str, str]) -> None:
    for name, role in roles.items():
        if role not in COLOURS:
            raise GraphError(
                f"Expected a role among {', '.join(COLOURS)}; got {role!r} for "
                f"{name!r}.{nearest(role, COLOURS)}"
            )


# In a column stands a vertex, or the place where edges of a vertex pass together.
_Slot = str | tuple[str, int]
_Slots = list[_Slot]


def _layout(scene: Scene) -> tuple[list[_Slots], list[_Slots]]:
    """Give the columns, and for each edge the slots that it runs through."""
    columns: list[_Slots] = [list(tier) for tier in scene.tiers]
    at = {v: i for i, tier in enumerate(scene.tiers) for v in tier}
    routes: list[_Slots] = []
    for u, v in scene.edges:
        between = range(at[u] + 1, at[v])
        for i in between:
            if (u, i) not in columns[i]:
                columns[i].append((u, i))
        routes.append([u, *((u, i) for i in between), v])
    return _untangled(columns, routes, scene.cliques), routes


def _untangled(
    columns: list[_Slots], routes: list[_Slots], cliques: Groups
) -> list[_Slots]:
    """Order each column by the mean height of its neighbours, to and fro."""
    mates = {v: clique for clique in cliques for v in clique}
    before = nx.DiGraph([link for route in routes for link in pairwise(route)])
    after = before.reverse()
    for _ in range(6):
        columns = _swept(columns, before, mates)
        columns = _swept(columns[::-1], after, mates)[::-1]
    return _swept(columns, before, mates)


def _swept(
    columns: list[_Slots], links: Any, mates: Mapping[str, tuple[str, ...]]
) -> list[_Slots]:
    height = _heights(columns)

    def key(slot: _Slot) -> tuple[float, str, str]:
        group = mates[slot] if isinstance(slot, str) else (slot,)
        near = [height[w] for v in group if v in links for w in links.pred[v]]
        level = near or [height[v] for v in group]
        return (-sum(level) / len(level), str(group), str(slot))

    swept: list[_Slots] = []
    for column in columns:
        swept.append(sorted(column, key=key))
        height.update(_heights(swept[-1:]))
    return swept


def _heights(columns: list[_Slots]) -> dict[_Slot, float]:
    """Stack each column about the middle line; a passing edge needs half a row."""
    heights: dict[_Slot, float] = {}
    for column in columns:
        sizes = [1.0 if isinstance(slot, str) else 0.5 for slot in column]
        for slot, size, end in zip(column, sizes, accumulate(sizes), strict=True):
            heights[slot] = (sum(sizes) + size) / 2 - end
    return heights


class _Box(NamedTuple):
    """Where a slot stands, in points: its middle, and half of its width."""

    x: float
    y: float
    half: float

    @property
    def left(self) -> tuple[float, float]:
        return self.x - self.half, self.y

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.half, self.y

    @property
    def top(self) -> tuple[float, float]:
        return self.x, self.y + _HEIGHT / 2


def _boxes(columns: list[_Slots], widths: Mapping[str, float]) -> dict[_Slot, _Box]:
    """Give every slot of a column the same width, so that no edge crosses a box."""
    boxes, x = {}, 0.0
    for column in columns:
        widest = max(widths[slot] for slot in column if isinstance(slot, str))
        half = widest / 2 + _PADDING
        for slot, height in _heights([column]).items():
            boxes[slot] = _Box(x + half, height * _ROW, half)
        x += 2 * half + _GAP
    return boxes


def _prepared(ax: Axes | None, boxes: Mapping[_Slot, _Box]) -> Axes:
    wide = max((box.right[0] for box in boxes.values()), default=0.0) + 30
    tall = max((box.top[1] for box in boxes.values()), default=0.0) + 30
    if ax is None:
        size = (max(wide, 460) / 72, (2 * tall + 40) / 72)
        ax = pyplot.figure(figsize=size, layout="constrained").add_subplot()
    ax.set(xlim=(-10, wide), ylim=(-tall, tall), aspect="equal")
    ax.set_axis_off()
    return ax


def _write(ax: Axes, box: _Box, text: TextPath, fill: str) -> None:
    corner, style = (box.left[0], box.y - _HEIGHT / 2), "round,pad=0,rounding_size=6"
    size = (2 * box.half, _HEIGHT)
    ax.add_patch(FancyBboxPatch(corner, *size, style, fc=fill, ec=_DARK, zorder=3))
    extents = text.get_extents()
    start = box.x - extents.width / 2 - extents.x0
    move = Affine2D().translate(start, box.y - 0.36 * _FONT)
    ax.add_patch(PathPatch(move.transform_path(text), fc="black", lw=0, zorder=4))


def _route(boxes: Sequence[_Box]) -> Path:
    """Run from right side to left side, level across every column that is passed."""
    points, codes = [boxes[0].right], [Path.MOVETO]
    for box in boxes[1:]:
        (x0, y0), (x1, y1) = points[-1], box.left
        points += [((x0 + x1) / 2, y0), ((x0 + x1) / 2, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
        if box is not boxes[-1]:
            points.append(box.right)
            codes.append(Path.LINETO)
    return Path(points, codes)


def _arc(one: _Box, other: _Box) -> Path:
    """Bow out beside the column for mates of one tier, over the top otherwise."""
    if one.x == other.x:
        start, end = one.right, other.right
        reach = max(start[0], end[0]) + 14 + abs(one.y - other.y) / 4
        bends = [(reach, start[1]), (reach, end[1])]
    else:
        start, end = one.top, other.top
        peak = max(start[1], end[1]) + 30
        bends = [(start[0], peak), (end[0], peak)]
    return Path([start, *bends, end], [Path.MOVETO] + [Path.CURVE4] * 3)


def _arrow(path: Path, both: bool = False) -> FancyArrowPatch:
    style, colour = ("<|-|>", _RED) if both else ("-|>", _DARK)
    arrow = FancyArrowPatch(path=path, arrowstyle=style, color=colour, zorder=2)
    arrow.set(mutation_scale=11, linestyle="--" if both else "-")
    return arrow


def _add_legend(scene: Scene, ax: Axes, roles: Mapping[str, str]) -> None:
    used = [role for role in COLOURS if role in roles.values()]
    handles: list[Any] = [Patch(fc=COLOURS[r], ec=_DARK, label=r) for r in used]
    if scene.bidirected_edges:
        mutual = scene.bidirected == "mutual"
        label = "influence each other" if mutual else "hidden common cause"
        handles.append(Line2D([], [], color=_RED, ls="--", label=label))
    if handles:
        ax.legend(
            handles=handles,
            ncols=3,
            frameon=False,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
        )
