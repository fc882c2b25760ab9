"""The page of a report, part by part; every text in it is escaped."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

import tomli_w

from forestall import html, ink
from forestall.html import escaped
from forestall.method import Policy
from forestall.report.facts import VERDICTS, Case, Headline, Origin
from forestall.report.figures import Picture, of_case, of_policy
from forestall.report.words import (
    CAUTION,
    MEANING,
    assumptions,
    grounds,
    identified,
    question,
)
from forestall.table import Table

# Rows of the table of decisions.
SHOWN = 200
RECOMMEND = "forestall recommend policy.forestall contexts.csv -o decisions.csv"


@dataclass(frozen=True, eq=False)
class Page:
    """What stands on the page.

    Args:
        policy: The policy that was asked.
        headline: What comes of following it.
        origin: What is needed to do it again.
        cases: The cases in the table.
        drawn: Those with figures.
        contexts: All contexts.
    """

    policy: Policy
    headline: Headline
    origin: Origin
    cases: list[Case]
    drawn: list[Case]
    contexts: Table

    def html(self) -> str:
        """Write the whole page."""
        style, script = _resource("page.css"), _resource("page.js")
        title = question(self.policy.problem)
        parts = [
            self._head(title),
            self._headline(),
            self._identification(),
            self._decisions(),
            *(self._case(case) for case in self.drawn),
            self._learned(),
            self._assumptions(),
            self._again(),
        ]
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
            f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n"
            f"<body>\n<main>\n{''.join(parts)}</main>\n"
            f"<script>{script}</script>\n</body>\n</html>\n"
        )

    def _head(self, title: str) -> str:
        records = self.origin.records
        learned = "" if records is None else f" from {records:,} records"
        day = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
        return (
            f'<header><p class="over">Advice for {_counted(self.headline.cases)}</p>'
            f"<h1>{escaped(title)}</h1>"
            f'<p class="under">{escaped(self.origin.method)}, learned{learned}. '
            f"{day}.</p></header>\n"
        )

    def _headline(self) -> str:
        told = self.headline
        tiles = "".join(
            f'<div class="tile {verdict}"><b>{told.counts[verdict]:,}</b>'
            f"<span>{html.badge(verdict)}</span><p>{MEANING[verdict]}</p></div>"
            for verdict in VERDICTS
        )
        return (
            f'<section class="headline"><div class="tiles">{tiles}</div>'
            f"{_shift(told)}</section>\n"
        )

    def _identification(self) -> str:
        found, criterion = self.policy.identification, self.policy.criterion
        rows = "".join(
            f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>"
            for name, text in grounds(found, criterion)
            if not name.startswith("Cause")
        )
        word, kind = identified(criterion.valid)
        return (
            f'<section><h2>Is it cause and effect?</h2><p class="verdict {kind}">'
            f"<strong>{word}</strong> {escaped(criterion.explanation)}</p>"
            f"<dl>{rows}</dl></section>\n"
        )

    def _decisions(self) -> str:
        actions = list(self.policy.problem.actions)
        named = [] if not self.cases or self.cases[0].name is None else ["name"]
        heads = ["row", *named, "case", *map(ink.words, actions)]
        heads += ["without action", "with it", "gain", "verdict"]
        top = "".join(_sortable(head) for head in heads)
        rows = "".join(_row(case, actions) for case in self.cases)
        return (
            f'<section><h2>Decisions</h2><p class="key">{_key()}</p>'
            f'<div class="scroll" tabindex="0" role="region" aria-label="Decisions">'
            f'<table id="decisions"><thead><tr>{top}<th>why</th></tr>'
            f"</thead><tbody>{rows}</tbody></table></div>"
            f'<p id="sorted" class="note" aria-live="polite"></p>{self._rest()}'
            f"</section>\n"
        )

    def _rest(self) -> str:
        if self.headline.cases <= len(self.cases):
            return ""
        return (
            f'<p class="note">The first {len(self.cases):,} of '
            f"{self.headline.cases:,} cases are shown; the counts and shares above are "
            f"of all. Write all decisions with <code>{RECOMMEND}</code>.</p>"
        )

    def _case(self, case: Case) -> str:
        pictures = of_case(self.policy, self.contexts, case.row, case.decision)
        return (
            f'<section class="case"><h2>{_title(case)}</h2>'
            f"<p>{html.badge(case.decision.verdict)} {escaped(case.decision)}</p>"
            f"{_gallery(pictures)}</section>\n"
        )

    def _learned(self) -> str:
        return (
            f'<section class="case"><h2>What history allows to say</h2>'
            f"<p>Where actions hardly varied, or where what was learned disagrees with "
            f"records left out, advice deserves doubt. No single record is shown.</p>"
            f"{_gallery(of_policy(self.policy))}</section>\n"
        )

    def _assumptions(self) -> str:
        told = assumptions(self.policy.identification, self.origin.method)
        items = "".join(f"<li>{escaped(text)}</li>" for text in told)
        return f"<section><h2>What the advice assumes</h2><ul>{items}</ul></section>\n"

    def _again(self) -> str:
        origin = self.origin
        fit = f"forestall fit problem.toml history.csv --method {origin.command}"
        commands = (
            f"{fit} -o policy.forestall",
            "forestall report policy.forestall contexts.csv -o report.html",
            RECOMMEND,
        )
        rows = {
            "Method": origin.settings,
            "Seed": "none is drawn from" if origin.seed is None else str(origin.seed),
            "Records": "unknown" if origin.records is None else f"{origin.records:,}",
            "Fingerprint": origin.fingerprint or "unknown",
            "Versions": ", ".join(f"{k} {v}" for k, v in origin.versions.items()),
        }
        told = "".join(f"<dt>{k}</dt><dd>{escaped(v)}</dd>" for k, v in rows.items())
        problem = tomli_w.dumps(self.policy.problem.to_dict(), multiline_strings=True)
        return (
            f"<section><h2>How to get it again</h2>"
            f"<pre>{escaped(chr(10).join(commands))}</pre><dl>{told}</dl>"
            f"<details><summary>problem.toml</summary><pre>{escaped(problem)}</pre>"
            f"</details></section>\n"
        )


def _shift(told: Headline) -> str:
    """The expected share of good outcomes before and after, with a caution."""
    if not told.readable:
        return (
            '<p class="note">No context could be read: there is nothing to expect.</p>'
        )
    worst = ""
    if math.isfinite(told.cautious):
        worst = (
            f" With every action at the lower end of its interval it would be "
            f"{html.share(told.cautious)}."
        )
    of = f" of the {told.readable:,} that could be read" * (told.readable < told.cases)
    return (
        f'<div class="shift"><p>Expected share of good outcomes{of}</p>'
        f'<p class="numbers"><span><b data-headline="before">'
        f"{html.share(told.before)}</b> without action</span>"
        f'<span class="arrow" aria-hidden="true">→</span><span class="now">'
        f'<b data-headline="after">{html.share(told.after)}</b> following the verdicts'
        f'</span></p><p class="note">{escaped(CAUTION)}{worst}</p></div>'
    )


def _row(case: Case, actions: Sequence[str]) -> str:
    one = case.decision
    cells = [
        _cell(case.row, str(case.row)),
        *([] if case.name is None else [_cell(case.name, escaped(case.name), "name")]),
        _described(case),
        *(_action(case, name) for name in actions),
        _cell(one.no_action, html.share(one.no_action)),
        _cell(one.probability, html.share(one.probability)),
        _gain(case),
        _cell(VERDICTS.index(one.verdict), html.badge(one.verdict)),
    ]
    reason = escaped(one.reason[:1].upper() + one.reason[1:])
    return f'<tr>{"".join(cells)}<td class="why">{reason}</td></tr>\n'


def _described(case: Case) -> str:
    told = "".join(
        f"<span><i>{escaped(ink.words(k))}</i> {escaped(v)}</span>"
        for k, v in case.described
    )
    return _cell(next(iter(case.values.values()), ""), told, "values")


def _action(case: Case, name: str) -> str:
    value = case.decision.actions.get(name)
    if not case.readable:
        return _cell("", "–")
    if value is None:
        return _cell("", "as it comes", "idle")
    advised = case.decision.verdict == "act"
    return _cell(value, f"{value:.4g}", "" if advised else "idle")


def _gain(case: Case) -> str:
    if not case.readable:
        return _cell("", "–")
    one = case.decision
    chances = one.no_action, one.probability, one.lower, one.upper
    bars = html.bars(*chances, advised=one.verdict == "act")
    points = f"<small>{100 * case.gain:+.0f} points</small>"
    return _cell(case.gain, bars + points, "gain")


def _cell(value: object, inside: str, kind: str = "") -> str:
    """A cell of the table that is sorted by ``value``; one that is NaN comes last."""
    missing = isinstance(value, float) and math.isnan(value)
    attribute = "" if missing else escaped(value)
    named = f' class="{kind}"' if kind else ""
    return f'<td{named} data-value="{attribute}">{inside}</td>'


def _sortable(head: str) -> str:
    return f'<th scope="col"><button type="button">{escaped(head)}</button></th>'


def _key() -> str:
    return (
        '<span class="swatch before"></span> without action '
        '<span class="swatch after"></span> with the action, and its 90 % interval '
        '<span class="swatch pale"></span> the best candidate, which is not advised; '
        "its values are grey"
    )


def _title(case: Case) -> str:
    name = f"row {case.row}" if case.name is None else case.name
    told = ", ".join(f"{ink.words(k)} {v}" for k, v in case.described)
    return f"Case {escaped(name)} <small>{escaped(told)}</small>"


def _gallery(pictures: Sequence[Picture]) -> str:
    drawn = "".join(_figure(each) for each in pictures if not each.missing)
    missing = "".join(
        f'<p class="note">Left out: {escaped(each.title)}. {escaped(each.missing)}</p>'
        for each in pictures
        if each.missing
    )
    return f'<div class="gallery">{drawn}</div>{missing}'


def _figure(picture: Picture) -> str:
    title = escaped(picture.title)
    return (
        f'<figure><h3>{title}</h3><img src="{picture.source}" alt="{title}">'
        f"<figcaption>{escaped(picture.caption)}</figcaption></figure>"
    )


def _counted(cases: int) -> str:
    return "1 case" if cases == 1 else f"{cases:,} cases"


def _resource(name: str) -> str:
    return files("forestall.report").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Forbid the browser to load anything, or to run any script but ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest())
    return (
        f"default-src &#x27;none&#x27;; img-src data:; style-src "
        f"&#x27;unsafe-inline&#x27;; script-src &#x27;sha256-{digest.decode()}&#x27;"
    )
