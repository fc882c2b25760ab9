"""One case as it is written on a command line: names with their values."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forestall.cells import reads_as_number
from forestall.encoding import Categorical, Column, pointed
from forestall.errors import DataError, SpecError, nearest
from forestall.method import Policy

YES_OR_NO = {"true": True, "false": False, "yes": True, "no": False}


def case_of(policy: Policy, pairs: Sequence[str], file: Path | None) -> dict[str, Any]:
    """Read one context, from pairs and from a file; what is wrong with it is raised."""
    columns = {column.name: column for column in policy.schema.context.columns}
    found = {} if file is None else _from_file(file)
    given = _pairs(pairs, tuple(columns), "--context")
    found |= {name: _value(columns[name], text) for name, text in given.items()}
    _require_all([name for name in columns if name not in found], tuple(columns))
    faults = policy.schema.encode_contexts(found).faults
    if len(faults) != 1:
        raise DataError(
            f"Expected one context; got {len(faults)}. Use 'forestall recommend' for "
            f"many."
        )
    if faults[0]:
        raise DataError(faults[0])
    return {name: found[name] for name in columns}


def actions_of(policy: Policy, pairs: Sequence[str]) -> dict[str, float]:
    """Read the actions that are asked about."""
    names = tuple(policy.problem.actions)
    found: dict[str, float] = {}
    for name, text in _pairs(pairs, names, "--action").items():
        try:
            found[name] = float(text)
        except ValueError:
            raise DataError(
                f"Expected a number for the action {name!r}; got {text!r}."
                f"{pointed(text)} Write, e.g., --action '{name}=0.4'."
            ) from None
    absent = [name for name in names if found and name not in found]
    if absent:
        raise DataError(
            f"Expected --action for every action ({', '.join(names)}); missing: "
            f"{', '.join(absent)}."
        )
    return found


def _require_all(absent: Sequence[str], names: Sequence[str]) -> None:
    if absent:
        raise DataError(
            f"Expected --context for each of {', '.join(names)}; missing: "
            f"{', '.join(absent)}. Write, e.g., --context '{absent[0]}=...', or all of "
            f"them as one JSON object with --context-file."
        )


def _pairs(pairs: Sequence[str], names: tuple[str, ...], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, text = _pair(pair, names, option)
        if name in found:
            raise SpecError(
                f"Expected {option} once for each name; got {name!r} as "
                f"{found[name]!r} and as {text!r}. Keep one of them."
            )
        found[name] = text
    return found


def _pair(pair: str, names: tuple[str, ...], option: str) -> tuple[str, str]:
    for name in names:
        if pair.startswith(f"{name}="):
            return name, pair[len(name) + 1 :]
    name, equals, _ = pair.partition("=")
    if not equals:
        raise SpecError(
            f"Expected {option} as NAME=VALUE, e.g. {names[0]}=0.3; got {pair!r}."
        )
    raise SpecError(
        f"Expected {option} to name one of {', '.join(names)}; got {name!r}."
        f"{nearest(name, names)}"
    )


def _value(column: Column, text: str) -> Any:
    """Read a value as the history has it: the level of a category, or a number."""
    if not isinstance(column, Categorical):
        if reads_as_number(text):
            return float(text)
        raise DataError(
            f"Expected a finite number for {column.name!r}; got {text!r}."
            f"{pointed(text) or ' Give its value.'}"
        )
    same = [level for level in column.levels if str(level) == text]
    as_bool = YES_OR_NO.get(text.lower())
    if not same and as_bool in column.levels and as_bool is not None:
        return as_bool
    return same[0] if same else text


def _from_file(file: Path) -> dict[str, Any]:
    place = "standard input" if str(file) == "-" else repr(str(file))
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        found = str(error)
    if not isinstance(found, dict) or not found:
        raise DataError(
            f"Expected one JSON object with the contexts in {place}; got "
            f"{str(found)[:80] or 'nothing'}. Write, e.g., "
            f'{{"credit_score": 0.3}}.'
        )
    return found
