"""Warnings of many batches, told once."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from forestall.errors import ForestallWarning, warn
from forestall.scale.source import Batch, Place

# Warnings that differ in more than their numbers, of which we keep so many.
MOST_WARNINGS = 20
GATHERING = Lock()


class Warned:
    """Warnings of many batches, each kind of them once.

    Two are of one kind when they differ in numbers and examples only.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._found: dict[Any, tuple[str, Place, int]] = {}

    def __add__(self, other: Warned) -> Warned:
        """Gather those of both."""
        both = Warned()
        for found in (self._found, other._found):
            for key, each in found.items():
                both._add(key, *each)
        return both

    @contextmanager
    def gather(self, batch: Batch) -> Iterator[None]:
        """Gather the warnings of one batch."""
        # Python keeps its filters for the whole process, not for each thread.
        with GATHERING, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ForestallWarning)
            yield
        for each in caught:
            if not issubclass(each.category, ForestallWarning):
                warnings.warn_explicit(
                    each.message, each.category, each.filename, each.lineno
                )
                continue
            text = str(each.message)
            key = (each.category, re.sub(r"\d+", "", text.partition(". ")[0]))
            self._add(key, text, batch.start, 1)

    def _add(self, key: Any, text: str, place: Place, count: int) -> None:
        if key in self._found:
            known, since, before = self._found[key]
            place, text = min((since, known), (place, text))
            self._found[key] = (text, place, before + count)
        elif len(self._found) < MOST_WARNINGS:
            self._found[key] = (text, place, count)

    def tell(self) -> None:
        """Warn of each kind once."""
        for (category, _), (text, place, count) in self._found.items():
            batches = f"{count} batches" if count > 1 else "1 batch"
            warn(f"In {batches}, first in that from {place}: {text}", category)
