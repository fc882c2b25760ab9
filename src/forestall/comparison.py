"""Which method when: every method judged on one history, by the records alone."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forestall.bout import Bout, Records
from forestall.errors import SpecError, nearest
from forestall.method import Method
from forestall.problem import Problem, require_problem
from forestall.standing import ASSUMES, Comparison
from forestall.table import Table

__all__ = ["Comparison", "compare"]

HOMES = {
    "NestedRehearsal": "forestall.nested",
    "StagedRehearsal": "forestall.staged",
    "ConditionalRehearsal": "forestall.conditional",
}


def compare(
    problem: Problem,
    history: Any,
    methods: Any = None,
    folds: int = 5,
    seed: int = 0,
    *,
    patience: float = 120.0,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Judge methods on one history: which would have done best, by records alone?

    Every method is fitted to all parts of the records but one, decides for that one,
    and is judged there by a doubly robust estimate. Records near its actions are what
    it rests on; where they are too few, there is none.

    Args:
        problem: The question.
        history: A table, a dict of arrays, or the path of a file.
        methods: Methods or their names, or a mapping of labels to methods; all of them
            when ``None``.
        folds: In how many parts the records are split.
        seed: What the split comes from.
        patience: Seconds for each method; one that takes longer is judged on fewer
            records, and the table says on how many.
        progress: Told what is being done.
    """
    require_problem(problem, history)
    chosen = _read_methods(methods)
    _check_patience(patience)
    records = Records.read(problem, history, _checked(folds), seed)
    tell = progress or (lambda _: None)
    tell("Learning what history did")
    linear = records.linear
    rows = tuple(
        Bout(label, method, records, patience, tell).row()
        for label, method in chosen.items()
    )
    return Comparison(
        rows=rows,
        records=records.data.n,
        left_out=records.left_out,
        folds=folds,
        good=float(records.data.good.mean()),
        linear=linear,
        steps=len(records.steps),
        backend=_backend(history),
    )


def _checked(folds: Any) -> int:
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise SpecError(
            f"Expected folds as a whole number of 2 or more; got {folds!r}. Use 5."
        )
    return folds


def _check_patience(patience: Any) -> None:
    number = isinstance(patience, int | float) and not isinstance(patience, bool)
    if not number or not patience >= 0:
        raise SpecError(
            f"Expected patience in seconds, zero or more; got {patience!r}. Use 120."
        )


def _read_methods(methods: Any) -> dict[str, Method]:
    if methods is None:
        methods = list(ASSUMES)
    if isinstance(methods, Mapping):
        found = dict(methods)
    else:
        methods = [methods] if isinstance(methods, str | Method) else list(methods)
        pairs = [(_label(each), _method(each)) for each in methods]
        labels = [label for label, _ in pairs]
        twice = [label for label in labels if labels.count(label) > 1]
        if twice:
            raise SpecError(
                f"Expected every method once; got {twice[0]} twice. Pass a mapping, to "
                f"call them by different names."
            )
        found = dict(pairs)
    for label, method in found.items():
        if not isinstance(method, Method):
            raise SpecError(f"Expected a method for {label!r}; got {method!r}.")
    if not found:
        raise SpecError("Expected at least one method to judge; got none.")
    return found


def _label(each: Any) -> str:
    return each if isinstance(each, str) else type(each).__name__


def _method(each: Any) -> Any:
    if not isinstance(each, str):
        return each
    if each not in ASSUMES:
        raise SpecError(
            f"Expected methods from {', '.join(ASSUMES)}; got {each!r}."
            f"{nearest(each, ASSUMES) or ' Use some of these, or none for all.'}"
        )
    home = importlib.import_module(HOMES.get(each, "forestall.baselines"))
    return getattr(home, each)()


def _backend(history: Any) -> Any:
    if isinstance(history, Mapping):
        return None
    if isinstance(history, str | Path | Table):
        return "pyarrow"
    import narwhals as nw

    try:
        return nw.from_native(history).implementation
    except TypeError:
        return "pyarrow"
