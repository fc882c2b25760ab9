"""Methods and approximations as a person names them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from forestall.errors import SpecError, nearest

if TYPE_CHECKING:
    from forestall.lowrank import Approximation
    from forestall.method import Method

METHODS = {
    "staged": ("staged", "StagedRehearsal"),
    "nested": ("nested", "NestedRehearsal"),
    "conditional": ("conditional", "ConditionalRehearsal"),
    "qwz23": ("baselines", "QWZ23"),
    "micns": ("baselines", "MICNS"),
    "care": ("baselines", "CARE"),
    "linear_optimal": ("baselines", "LinearOptimal"),
    "grad": ("baselines", "GradRehearsal"),
    "no_action": ("baselines", "NoAction"),
}
# What Python and the tables of ``compare`` call them.
CLASSES = {kind: name for name, (_, kind) in METHODS.items()}
OF_LOW_RANK = ("staged", "nested", "conditional")
SHARED = ("staged",)
KINDS = ("nystrom", "fourier")


def method_named(name: str, approximation: str | None = None) -> Method:
    """Make a method with its default settings.

    Args:
        name: One of ``METHODS``, or of ``CLASSES``.
        approximation: What :func:`approximation_named` reads, or nothing.
    """
    name = CLASSES.get(name, name)
    if name not in METHODS:
        raise SpecError(
            f"Expected a method for --method, one of {', '.join(METHODS)}; got "
            f"{name!r}.{nearest(name, METHODS)}"
        )
    if approximation is not None and name not in OF_LOW_RANK:
        raise SpecError(
            f"Expected --approximation with {', '.join(OF_LOW_RANK)} only; got it with "
            f"{name!r}, which has none. Leave it out."
        )
    home, kind = METHODS[name]
    method = getattr(importlib.import_module(f"forestall.{home}"), kind)
    if approximation is None:
        return method()
    return method(approximation=approximation_named(approximation))


def shared_by(jobs: int, name: str) -> dict[str, int]:
    """What to tell a method of processes that share the work; nothing for one.

    Args:
        jobs: How many there are.
        name: What the method was called.
    """
    if jobs > 1 and CLASSES.get(name, name) not in SHARED:
        raise SpecError(
            f"Expected --jobs with --method {' or '.join(SHARED)} only; got it with "
            f"{name!r}, which learns in one process. Leave it out."
        )
    return {"jobs": jobs} if jobs > 1 else {}


def size_text(method: Method, n: int) -> str:
    """Say that an approximation has nothing to approximate; empty where it has.

    Args:
        method: The method, with its approximation.
        n: How many records the approximation was made of.
    """
    from forestall.lowrank import Nystrom, RandomFourier

    found = getattr(method, "approximation", None)
    if isinstance(found, Nystrom) and found.rank > n:
        return (
            f"--approximation asks for {found.rank:,} records to speak for all, but "
            f"there are {n:,}: all {n:,} were used, and nothing is gained. Leave it "
            f"out, or ask for fewer."
        )
    if isinstance(found, RandomFourier) and found.n_features > n:
        return (
            f"--approximation asks for {found.n_features:,} features, but there are "
            f"{n:,} records: nothing is gained. Leave it out, or ask for fewer."
        )
    return ""


def class_named(name: str) -> str:
    """Call a method as Python does; a name that is none stays as it is."""
    return METHODS[name][1] if name in METHODS else name


def approximation_named(text: str) -> Approximation:
    """Read an approximation, e.g. ``nystrom:500``."""
    from forestall.lowrank import Nystrom, RandomFourier

    kind, _, size = text.strip().lower().partition(":")
    if kind not in KINDS or not (size.isascii() and size.isdigit()) or len(size) > 9:
        raise SpecError(
            f"Expected --approximation as nystrom:500 or fourier:500, the kind and a "
            f"whole number; got {text!r}."
        )
    if kind == "nystrom":
        return Nystrom(rank=int(size))
    return RandomFourier(n_features=int(size))
