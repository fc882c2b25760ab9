"""A report for a meeting: one page that stands by itself, to read, sort and print.

No record of the history is in it, only what was learned from many; the contexts that
are decided about are.
"""

from __future__ import annotations

import numbers
from pathlib import Path
from typing import Any

from forestall import ink
from forestall.errors import DataError, SpecError
from forestall.files import write_text
from forestall.method import Policy
from forestall.report.facts import Headline, Origin, cases_of, chosen
from forestall.report.page import SHOWN, Page

__all__ = ["SHOWN", "write"]


def write(
    policy: Policy,
    contexts: Any,
    out: str | Path,
    *,
    figures: int = 3,
    identifier: str | None = None,
) -> Path:
    """Decide about contexts and write the advice, and why, as one HTML file.

    The file loads nothing from elsewhere. It holds the contexts, so treat it as you
    treat them; of the history it shows groups of records only.

    Args:
        policy: A fitted policy.
        contexts: A table of contexts, or one mapping of names to values.
        out: The file, replaced as a whole.
        figures: For how many contexts to draw figures: the first to act on, then those
            with most to gain.
        identifier: A column of the contexts that names the cases.
    """
    ink.matplotlib()
    count = _checked(figures)
    told = policy.recommend(contexts)
    names = policy.schema.context.names
    shown = range(min(SHOWN, len(told)))
    drawn = chosen(told.verdict, told.probability - told.no_action, count)
    page = Page(
        policy,
        Headline.of(told),
        Origin.of(policy),
        cases_of(told, names, identifier, shown),
        cases_of(told, names, identifier, drawn),
        told.table,
    )
    try:
        return write_text(out, page.html())
    except OSError as error:
        raise DataError(
            f"Expected a file to write the report to; could not write {str(out)!r}: "
            f"{error.strerror or error}. Check the path, and that there is room."
        ) from error


def _checked(figures: Any) -> int:
    whole = isinstance(figures, numbers.Integral) and not isinstance(figures, bool)
    if not whole or figures < 0:
        raise SpecError(
            f"Expected figures to be whole and not below zero; got {figures!r}. Pass 0 "
            f"to draw none for single contexts."
        )
    return int(figures)
