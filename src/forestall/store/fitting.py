"""Whether a value is what its annotation says."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import AbstractArray, Bool, Float, jaxtyped

from forestall.arrays import Array

# Classes that users construct are annotated with plain arrays.
SHAPES: dict[str, dict[str, Any]] = {
    "observations.Observations": {
        "x": Float[Array, "n d_x"],
        "u": Float[Array, "n d_u"],
        "a": Float[Array, "n d_a"],
        "y": Float[Array, "n d_y"],
        "y_raw": Float[Array, "n d_y"],
        "good": Bool[Array, " n"],
    },
    "observations.Schema": {"bounds": Float[Array, "d_a 2"]},
    "region.Polytope": {
        "normals": Float[Array, "l d"],
        "offsets": Float[Array, " l"],
        "strict": Bool[Array, " l"],
        "_written": Float[Array, "l d_and_1"],
    },
}


def misfit(kind: type, name: str, values: Mapping[str, Any]) -> str | None:
    """Name the first field whose value is not what its annotation says.

    Letters in the shapes of arrays stand for the same number in every field.
    """
    hints = typing.get_type_hints(kind) | SHAPES.get(name, {})
    for key, value in values.items():
        if not fits(value, hints[key]):
            return key
    # Letters are known only in this very function, so here are no calls of our own.
    with jaxtyped("context"):
        for key, value in values.items():
            hint = hints[key]
            if isinstance(hint, type) and issubclass(hint, AbstractArray):
                if not isinstance(value, hint):
                    return key
    return None


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is what an annotation says."""
    if hint is Any:
        return True
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and _each_fits(value, inner)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items()
        )
    if origin is Sequence:
        return isinstance(value, tuple | list) and all(fits(v, inner[0]) for v in value)
    return _is_one(value, hint)


def _each_fits(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(fits(v, hints[0]) for v in values)
    pairs = zip(values, hints, strict=False)
    return len(values) == len(hints) and all(fits(v, hint) for v, hint in pairs)


def _is_one(value: Any, hint: Any) -> bool:
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return type(value) in (int, float)
    if hint is int:
        return type(value) is int
    if isinstance(value, np.ndarray) or issubclass(hint, AbstractArray):
        return isinstance(value, np.ndarray) and isinstance(value, hint)
    return isinstance(value, hint)
