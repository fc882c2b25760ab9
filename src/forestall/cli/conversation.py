"""Asking for the question on a terminal, one role after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import typer

from forestall import screen
from forestall.errors import ForestallError, SpecError
from forestall.identify import Tiers
from forestall.init import (
    Draft,
    Records,
    coded,
    read_desired,
    read_interval,
    read_names,
    read_order,
)
from forestall.region import Polytope

T = TypeVar("T")


def ask(draft: Draft, records: Records) -> Draft:
    """Ask for everything that is missing of a question."""
    _show_columns(records)
    if not draft.actions:
        draft = replace(draft, actions=_actions(draft, records))
    if not draft.outcomes:
        names = _names("What is to come out well? (outcomes)", draft, records)
        draft = replace(draft, outcomes=names)
    if not draft.context:
        names = _names("What is known before the decision? (contexts)", draft, records)
        draft = replace(draft, context=names)
    if not draft.covariates and not draft.order:
        text = "What else influenced actions or outcomes? (covariates; Enter for none)"
        draft = replace(draft, covariates=_names(text, draft, records, needed=False))
    if draft.covariates and not draft.order:
        draft = replace(draft, order=_order(draft))
    draft = _with_intervals(draft, records)
    if not draft.desired:
        draft = replace(draft, desired=_desired(draft, records))
    return _with_codes(draft, records)


def _show_columns(records: Records) -> None:
    screen.say(f"{records.table.n:,} records with these columns:", "bold")
    for name, told in records.summaries.items():
        screen.say(f"  {name}: ", "bold", str(told))


def _until_read(text: str, read: Callable[[str], T], default: str | None = None) -> T:
    """Ask until an answer can be read."""
    while True:
        answer = typer.prompt(
            text, default=default, err=True, show_default=bool(default)
        )
        try:
            return read(answer)
        except ForestallError as error:
            screen.say("Error: ", "bold red", str(error))


def _names(
    text: str, draft: Draft, records: Records, needed: bool = True
) -> tuple[str, ...]:
    def read(answer: str) -> tuple[str, ...]:
        names = records.known(read_names([answer], tuple(records.summaries)), "a role")
        for name in names:
            if name in draft.used:
                raise SpecError(
                    f"Expected a column without a role yet; got {name!r}, which has "
                    f"one. Name others."
                )
        if needed and not names:
            raise SpecError("Expected at least one column; got none. Name one.")
        return names

    return _until_read(f"{text}\n ", read, default=None if needed else "")


def _actions(draft: Draft, records: Records) -> tuple[str, ...]:
    """Ask for actions until all of them are amounts."""
    while True:
        names = _names("What can be set? (actions)", draft, records)
        try:
            for name in names:
                records.summaries[name].require_amounts()
        except ForestallError as error:
            screen.say("Error: ", "bold red", str(error))
        else:
            return names


def _order(draft: Draft) -> Tiers:
    """Ask where each covariate stands; the rest follows from the roles."""
    before, after = [], []
    for name in draft.covariates:
        text = (
            f"Is {name} settled before the actions are set, or after? (before, after)"
        )
        if _until_read(text, _before_or_after) == "before":
            before.append(name)
        else:
            after.append(name)
    tiers = (tuple(before), draft.actions, tuple(after))
    if len(draft.actions) > 1:
        usual = " < ".join(", ".join(tier) for tier in tiers if tier)
        columns = (*draft.covariates, *draft.actions)
        return _until_read(
            "In which order do they arise? (what arises at once with commas)",
            lambda answer: read_order(answer, columns),
            default=usual,
        )
    return tuple(tier for tier in tiers if tier)


def _before_or_after(answer: str) -> str:
    found = [word for word in ("before", "after") if word.startswith(answer.strip())]
    if len(found) != 1:
        raise SpecError(
            f"Expected before or after; got {answer!r}. What the actions influence is "
            f"after."
        )
    return found[0]


def _with_intervals(draft: Draft, records: Records) -> Draft:
    given = dict(draft.intervals)
    for name in records.known(draft.actions, "actions"):
        if name in given:
            continue
        try:
            low, high = records.summaries[name].interval()
            usual = f"{low:g}..{high:g}"
        except ForestallError as error:
            screen.say("Error: ", "bold red", str(error))
            usual = None

        def read(answer: str) -> tuple[float, float]:
            return read_interval(f"={answer}")[1]

        text = f"Where may {name} be set? (98 % of the records are in the proposal)"
        given[name] = _until_read(text, read, default=usual)
    return replace(draft, intervals=given)


def _desired(draft: Draft, records: Records) -> tuple[str, ...]:
    names = records.known(draft.outcomes, "outcomes")
    for name in names:
        screen.say(f"  {name}: ", "bold", f"{records.summaries[name].spread}.")

    def read(answer: str) -> tuple[str, ...]:
        texts = read_desired([answer])
        Polytope.parse(list(texts), names).require_interior()
        return texts

    first = names[0] if names[0].isidentifier() else f"`{names[0]}`"
    return _until_read(f"What is desired? (e.g. {first} >= 1)", read)


def _with_codes(draft: Draft, records: Records) -> Draft:
    codes = [
        name
        for name in coded(draft, records)
        if typer.confirm(f"Are the numbers of {name} codes of categories?", err=True)
    ]
    return replace(draft, categorical=(*draft.categorical, *codes))
