"""Taking a policy apart: objects, numbers and texts into JSON, arrays beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from forestall.arrays import Array
from forestall.errors import StoreError
from forestall.problem import Problem
from forestall.store.archive import DTYPES, Entry
from forestall.store.known import known_name

# Larger whole numbers are no count, seed or hash.
LARGEST = 2**64


class Parts:
    """The objects and arrays of a policy, each of them once.

    An object refers to objects before it, so that a file has no circles.

    Args:
        problem: The question. The document tells it by itself, all but the numbers of
            its region.

    Attributes:
        objects: The objects as JSON, parts before wholes.
        arrays: The arrays.
    """

    def __init__(self, problem: Problem) -> None:
        """Begin with nothing else."""
        self._problem = problem
        self.objects: list[dict[str, Any]] = []
        self.arrays: dict[Entry, Array] = {}
        self._places: dict[int, int] = {}
        self._entries: dict[tuple[Any, ...], int] = {}

    def told(self, value: Any, where: str) -> Any:
        """Say a value in JSON; ``where`` is its path from the policy."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int and abs(value) < LARGEST:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray):
            return {"array": self._array(value, where)}
        if isinstance(value, Problem) and value is not self._problem:
            raise unknown(value, where)
        if dataclasses.is_dataclass(value) and known_name(type(value)):
            return {"object": self._object(value, where)}
        return self._several(value, where)

    def _several(self, value: Any, where: str) -> Any:
        if type(value) in (tuple, list):
            each = [self.told(v, f"{where}.{k}") for k, v in enumerate(value)]
            return each if type(value) is tuple else {"list": each}
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, Mapping):
            pairs = enumerate(value.items())
            return {
                "dict": [
                    [self.told(key, f"{where}.{k}"), self.told(v, f"{where}.{k}")]
                    for k, (key, v) in pairs
                ]
            }
        raise unknown(value, where)

    def _object(self, value: Any, where: str) -> int:
        if id(value) not in self._places:
            fields = self._fields(value, where)
            told = {"class": known_name(type(value)), "fields": fields}
            self._places[id(value)] = len(self.objects)
            self.objects.append(told)
        return self._places[id(value)]

    def _fields(self, value: Any, where: str) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(value)]
        if isinstance(value, Problem):
            # As text, a region of any numbers would lose its last digits.
            names = ["region"]
        dot = f"{where}." if where else ""
        return {name: self.told(getattr(value, name), dot + name) for name in names}

    def _array(self, array: Array, where: str) -> int:
        if not DTYPES.fullmatch(array.dtype.str):
            raise unknown(array, where)
        pointer = array.__array_interface__["data"][0]
        key = (pointer, array.shape, array.strides, array.dtype.str)
        if key not in self._entries:
            flags = array.flags
            order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
            entry = Entry(f"{where}.npy", array.dtype.str, array.shape, order)
            self._entries[key] = len(self.arrays)
            self.arrays[entry] = array
        return self._entries[key]


def unknown(value: Any, where: str) -> StoreError:
    """Say what cannot be saved, and where it is."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        kind = f"an array of {value.dtype}"
    return StoreError(
        f"Expected a policy of numbers, texts, arrays and forestall's own classes; got "
        f"{kind} at {where or 'the top'!r}. Save a policy that forestall itself has "
        f"fitted, or add the class to forestall.store.known."
    )
