"""Putting a policy together again, from a document that may say anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from forestall.arrays import Array
from forestall.errors import ForestallError
from forestall.observations import Observations
from forestall.problem import Problem
from forestall.region import Polytope
from forestall.store.archive import DamageError
from forestall.store.fitting import misfit
from forestall.store.known import known_class
from forestall.store.taking import LARGEST

# Lists within lists, as deep as they may be.
DEEPEST = 8
SCALARS = (str, bool, int, float)


class Building:
    """Objects made one after the other; each knows only those before it.

    Args:
        problem: The question, as plain fields.
        arrays: What the document's references to arrays mean.
    """

    def __init__(self, problem: dict[str, Any], arrays: Sequence[Array]) -> None:
        """Begin with nothing else."""
        self._problem, self._arrays = _problem(problem), arrays
        self._objects: list[Any] = []

    def add(self, told: Any) -> Any:
        """Make the next object of what the document tells."""
        if not isinstance(told, dict) or set(told) != {"class", "fields"}:
            raise DamageError("an object without class and fields")
        name, fields = told["class"], told["fields"]
        kind = known_class(name) if isinstance(name, str) else None
        if kind is None:
            raise DamageError(f"an object of an unknown class, {_short(name)}")
        if not isinstance(fields, dict):
            raise DamageError(f"{name} without fields")
        made = self._made(kind, name, fields)
        self._objects.append(made)
        return made

    def value(self, told: Any, depth: int = 0) -> Any:
        """Read one value."""
        if depth > DEEPEST:
            raise DamageError(f"lists within lists, more than {DEEPEST} deep")
        if isinstance(told, list):
            return tuple(self.value(each, depth + 1) for each in told)
        if isinstance(told, dict):
            return self._tagged(told, depth)
        if type(told) is int and abs(told) >= LARGEST:
            raise DamageError("a whole number beyond all sizes")
        return told

    def _tagged(self, told: dict[str, Any], depth: int) -> Any:
        tag, inner = next(iter(told.items()), ("", None))
        match tag if len(told) == 1 else "", inner:
            case "array", _:
                return _at(self._arrays, inner, tag)
            case "object", _:
                return _at(self._objects, inner, tag)
            case "float", "nan" | "inf" | "-inf":
                return float(inner)
            case "list" | "slice" | "dict", list():
                return self._several(tag, inner, depth)
        raise DamageError(f"a value that cannot be read, {_short(tag)}")

    def _several(self, tag: str, inner: list[Any], depth: int) -> Any:
        each = [self.value(v, depth + 1) for v in inner]
        if tag == "list":
            return each
        if tag == "slice":
            whole = all(k is None or type(k) is int for k in each)
            if len(each) != 3 or not whole:
                raise DamageError("a slice of other things than three whole numbers")
            return slice(*each)
        pairs = [pair for pair in each if isinstance(pair, tuple) and len(pair) == 2]
        if len(pairs) != len(each) or any(type(k) not in SCALARS for k, _ in pairs):
            raise DamageError("a mapping that is not of pairs")
        return dict(pairs)

    def _made(self, kind: type[Any], name: str, fields: dict[str, Any]) -> Any:
        if kind is Problem:
            return self._asked(fields)
        known = {field.name: field for field in dataclasses.fields(kind)}
        strange = [key for key in fields if key not in known]
        if strange:
            raise DamageError(f"{name} with an unknown field, {_short(strange[0])}")
        values = {
            key: self.value(fields[key]) if key in fields else _default(name, field)
            for key, field in known.items()
        }
        wrong = misfit(kind, name, values)
        if wrong is not None:
            raise DamageError(f"{name} whose {wrong} is not what it should be")
        return _checked(_filled(kind, values), name)

    def _asked(self, fields: dict[str, Any]) -> Problem:
        """Give the problem with its region as it was, to the last digit."""
        region = self.value(fields.get("region"))
        same = isinstance(region, Polytope) and region.names == self._problem.outcomes
        if not same or len(fields) != 1:
            raise DamageError("a problem whose region is none of its outcomes")
        vars(self._problem)["region"] = region
        return self._problem


def _at(things: Sequence[Any], place: Any, what: str) -> Any:
    if type(place) is not int or not 0 <= place < len(things):
        raise DamageError(f"a reference to no {what}, {_short(place)}")
    return things[place]


def _default(name: str, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise DamageError(f"{name} without {field.name}")


def _filled(kind: type[Any], values: dict[str, Any]) -> Any:
    # Not by the constructor: a region would scale its rows anew, to other last digits.
    made = object.__new__(kind)
    for key, value in values.items():
        object.__setattr__(made, key, value)
    return made


def _checked(made: Any, name: str) -> Any:
    """Have hyperparameters check themselves; hold records against their encoding."""
    try:
        if hasattr(made, "__post_init__") and not isinstance(made, Polytope):
            made.__post_init__()
    except ForestallError as error:
        raise DamageError(f"{name} that is refused ({error})") from error
    if isinstance(made, Polytope) and made._written.shape[1] != made.dim + 1:
        raise DamageError("a region whose rows do not fit each other")
    if isinstance(made, Observations):
        schema = made.schema
        blocks = (schema.context, schema.covariates, schema.actions, schema.outcomes)
        arrays = (made.x, made.u, made.a, made.y)
        pairs = zip(arrays, blocks, strict=True)
        if any(array.shape[1] != block.width for array, block in pairs):
            raise DamageError("records that do not fit their encoding")
    return made


def _problem(fields: dict[str, Any]) -> Problem:
    if not isinstance(fields.get("missing", ""), str):
        raise DamageError("a problem whose missing is no text")
    try:
        return Problem.from_dict(fields)
    except (ForestallError, RecursionError, MemoryError) as error:
        raise DamageError(f"a problem that is refused ({error})") from error


def _short(value: Any) -> str:
    """Show what came, if it is short enough to be shown."""
    if value is None or isinstance(value, SCALARS):
        return repr(value)[:80]
    return f"a {type(value).__name__}"
