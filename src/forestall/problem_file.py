"""The text of a proposed problem file: every part with a word on what it means."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tomli_w

from forestall.check import check
from forestall.init import Draft, Records, coded
from forestall.problem import Problem

BARE = re.compile(r"[A-Za-z0-9_-]+")
WIDTH = 80


def proposed(draft: Draft, records: Records, source: str) -> str:
    """Write a problem file; checked against the records first.

    Args:
        draft: The question.
        records: The history.
        source: What the history is called.
    """
    fields = draft.fields(records)
    check(Problem.from_dict(fields), records.table)
    return text_of(fields, draft, records, source)


def text_of(
    fields: Mapping[str, Any], draft: Draft, records: Records, source: str
) -> str:
    """Write the fields of a problem with comments, as TOML."""
    parts = _parts(fields, draft, records, source)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _parts(
    fields: Mapping[str, Any], draft: Draft, records: Records, source: str
) -> Iterator[list[str]]:
    yield _comment(
        f"What forestall is asked of the {records.table.n:,} records in "
        f"{value(source)}. Correct what is wrong here, then: forestall check"
    )
    yield [
        *_comment("Known before the decision, and given for every new case."),
        f"context = {value(fields['context'])}",
    ]
    yield _covariates(fields, draft, records)
    yield [
        *_comment("What is to come out well. Numbers; write yes and no as 1 and 0."),
        f"outcomes = {value(fields['outcomes'])}",
    ]
    yield _desired(fields, records)
    if "order" in fields:
        yield [
            *_comment(
                "Earliest first; what stands in one inner list arises at the same "
                "time. What precedes an action is adjusted for, what follows from it "
                "is not."
            ),
            f"order = {value(fields['order'])}",
        ]
    yield from _optional(fields, draft, records)
    yield from _actions(fields["actions"], draft)


def _covariates(fields: Mapping[str, Any], draft: Draft, records: Records) -> list[str]:
    lines = _comment(
        "Recorded, but neither known before the decision nor set by it. Whatever "
        "influenced both an action and an outcome has to be here or above, or the "
        "advice is confounded."
    )
    rest = [name for name in records.summaries if name not in draft.used]
    if rest:
        names = ", ".join(map(value, rest))
        lines += _comment(f"Columns without a role, left out: {names}.")
    if "covariates" in fields:
        return [*lines, f"covariates = {value(fields['covariates'])}"]
    return [*lines, "# covariates = []  # needs an order, too"]


def _desired(fields: Mapping[str, Any], records: Records) -> list[str]:
    lines = _comment("What is desired: linear constraints that are all to hold.")
    for name in fields["outcomes"]:
        lines += _comment(f"{value(name)}: {records.summaries[name].spread}.")
    return [*lines, f"desired = {value(fields['desired'])}"]


def _optional(
    fields: Mapping[str, Any], draft: Draft, records: Records
) -> Iterator[list[str]]:
    unsure = coded(draft, records)
    if "categorical" in fields or unsure:
        lines = _comment(
            "Numbers that are codes of categories, not amounts; text is seen by itself."
        )
        if unsure:
            names = ", ".join(map(value, unsure))
            lines += _comment(f"Few whole numbers, so perhaps codes: {names}.")
        mark = "" if "categorical" in fields else "# "
        shown = fields.get("categorical", list(unsure))
        yield [*lines, f"{mark}categorical = {value(shown)}"]
    if "missing" in fields:
        gaps = (name for name in draft.used if records.summaries[name].gaps)
        names = ", ".join(map(value, gaps))
        yield [
            *_comment(f'Records with gaps ({names}) are left out; "error" refuses.'),
            f"missing = {value(fields['missing'])}",
        ]


def _actions(
    actions: Mapping[str, Sequence[float]], draft: Draft
) -> Iterator[list[str]]:
    lines = _comment(
        "What can be set: the lowest and highest feasible value of each, in its own "
        "unit."
    )
    lines.append("[actions]")
    for name, ends in actions.items():
        if name not in draft.intervals:
            lines += _comment(
                "Proposed: 98 % of the records lie within, rounded. Advice stays there."
            )
        lines.append(f"{key(name)} = {value(list(ends))}")
    yield lines


def value(of: Any) -> str:
    """Write a value as TOML, in one line.

    Example:
        >>> value(["a", [0.5, 1.0]])
        '["a", [0.5, 1.0]]'
    """
    if isinstance(of, list):
        return f"[{', '.join(map(value, of))}]"
    return tomli_w.dumps({"of": of}).removeprefix("of = ").removesuffix("\n")


def key(name: str) -> str:
    """Write a name as the key of a TOML table."""
    return name if BARE.fullmatch(name) else value(name)


def _comment(text: str) -> list[str]:
    # Names in it are quoted by ``value``, so that none breaks the line.
    lines = textwrap.wrap(
        text, WIDTH - 2, break_long_words=False, break_on_hyphens=False
    )
    return [f"# {line}" for line in lines]
