"""Pieces of HTML for notebooks and the report: badges, bars, small tables.

Everything that a user has named or written is escaped here. Colours are those of the
page around where they can be, so that light and dark notebooks are both legible.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

# Each can be changed by a page of its own; these are legible on white and on black.
AFTER = "var(--after, #2a86c0)"
COLOURS = {
    "act": "var(--act, #12805f)",
    "leave": "var(--leave, #6b7280)",
    "abstain": "var(--abstain, #a85d00)",
}
# Of a pair of bars, in pixels.
WIDTH, HEIGHT = 150, 22

_PILL = (
    "display:inline-block;padding:0 .6em;border-radius:1em;font-size:.85em;"
    "font-weight:600;line-height:1.6;color:#fff;background:"
)
_HEAD = "text-align:left;padding:.25em .8em .25em 0;font-weight:600;vertical-align:top"
_CELL = "text-align:left;padding:.25em .8em .25em 0;vertical-align:top"
_RULE = "border-bottom:1px solid rgba(128,128,128,.35)"
_FAINT = "opacity:.7;font-size:.9em"
_TABLE = "border-collapse:collapse;color:inherit;background:transparent;font-size:.95em"


def escaped(value: object) -> str:
    """Write any value as text that HTML takes for nothing else.

    Example:
        >>> escaped('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(_printable(str(value)), quote=True)


def badge(verdict: str) -> str:
    """Show a verdict as a word on its colour."""
    colour = COLOURS.get(verdict, COLOURS["leave"])
    return f'<span style="{_PILL}{colour}">{escaped(verdict)}</span>'


def share(p: float) -> str:
    """Write a probability in percent, never as certain; a dash where there is none.

    Example:
        >>> share(0.416), share(0.999), share(float("nan"))
        ('42%', '&gt; 99%', '–')
    """
    if math.isnan(p):
        return "–"
    if p > 0.99:
        return "&gt; 99%"
    return "&lt; 1%" if p < 0.01 else f"{p:.0%}"


def interval(lower: float, upper: float) -> str:
    """Write an interval in percent; nothing where there is none."""
    if math.isnan(lower) or math.isnan(upper):
        return ""
    return f"{lower:.0%} to {upper:.0%}"


def bars(
    before: float, after: float, lower: float, upper: float, *, advised: bool = True
) -> str:
    """Draw the chance of a good outcome without action above that with it.

    Args:
        before: The chance without action.
        after: The chance with it.
        lower: The lower end of its interval; NaN without one.
        upper: The upper end.
        advised: Whether to act; what is not advised is drawn pale.
    """
    if math.isnan(before) or math.isnan(after):
        return ""
    told = f"without action {before:.0%}, with it {after:.0%}"
    between = interval(lower, upper)
    told += f", 90 % interval {between}" * bool(between)
    opacity = 1.0 if advised else 0.45
    parts = [
        _bar(0.0, 1.0, 2.0, HEIGHT - 4.0, "currentColor", 0.08),
        _bar(0.0, before, 3.0, 7.0, "currentColor", 0.45),
        _bar(0.0, after, 12.0, 7.0, AFTER, opacity),
        _whisker(lower, upper) if between else "",
    ]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-label="{told}" style="vertical-align:middle">'
        f"<title>{told}</title>{''.join(parts)}</svg>"
    )


def _bar(
    start: float, stop: float, top: float, height: float, fill: str, opacity: float
) -> str:
    x, width = start * WIDTH, max(0.0, (stop - start) * WIDTH)
    return (
        f'<rect x="{x:.1f}" y="{top:g}" width="{width:.1f}" height="{height:g}" '
        f'style="fill:{fill};fill-opacity:{opacity:g}"/>'
    )


def _whisker(lower: float, upper: float) -> str:
    left, right = max(1.0, lower * WIDTH), min(WIDTH - 1.0, upper * WIDTH)
    path = f"M{left:.1f} 12.5v6M{left:.1f} 15.5H{right:.1f}M{right:.1f} 12.5v6"
    return f'<path d="{path}" style="fill:none;stroke:currentColor;stroke-width:1.4"/>'


def pairs(title: str, lines: Mapping[str, str]) -> str:
    """Show names beside what is said of them, each on a line."""
    rows = "".join(
        f'<tr><th style="{_HEAD}">{escaped(name)}</th>'
        f'<td style="{_CELL}">{escaped(text)}</td></tr>'
        for name, text in lines.items()
    )
    return _around(title, f'<table style="{_TABLE}">{rows}</table>')


def sentence(verdict: str, text: str, drawn: str) -> str:
    """Show a decision: the verdict, what it says, and the bars of ``drawn``."""
    return f"<div>{badge(verdict)} {escaped(text)}<br>{drawn}</div>"


def table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], note: str = ""
) -> str:
    """Show rows of cells that are HTML already, with heads that are text."""
    top = "".join(f'<th style="{_HEAD};{_RULE}">{escaped(h)}</th>' for h in heads)
    cells = "".join(map(_row, rows))
    below = f'<div style="{_FAINT}">{escaped(note)}</div>' if note else ""
    drawn = (
        f'<table style="{_TABLE}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{cells}</tbody></table>"
    )
    return _around(title, drawn + below)


def _row(cells: Sequence[str]) -> str:
    inside = "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells)
    return f"<tr>{inside}</tr>"


def _around(title: str, inside: str) -> str:
    return f'<div><div style="font-weight:600">{escaped(title)}</div>{inside}</div>'


def _printable(text: str) -> str:
    """Replace what no HTML may hold: control characters and halves of surrogates."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
