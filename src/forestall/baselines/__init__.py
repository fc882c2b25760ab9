"""Methods to compare with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from forestall.baselines.no_action import NoAction

if TYPE_CHECKING:
    from forestall.baselines.care import CARE
    from forestall.baselines.grad_rehearsal import GradRehearsal
    from forestall.baselines.linear_optimal import LinearOptimal
    from forestall.baselines.micns import MICNS
    from forestall.baselines.qwz23 import QWZ23

__all__ = ["CARE", "MICNS", "QWZ23", "GradRehearsal", "LinearOptimal", "NoAction"]

# Loaded when first asked for: some need packages that are an extra.
_HOMES = {
    "CARE": "care",
    "GradRehearsal": "grad_rehearsal",
    "LinearOptimal": "linear_optimal",
    "MICNS": "micns",
    "QWZ23": "qwz23",
}


def __getattr__(name: str) -> Any:
    """Load a method when it is first asked for."""
    if name in _HOMES:
        home = importlib.import_module(f"forestall.baselines.{_HOMES[name]}")
        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the methods, loaded or not."""
    return sorted(__all__)
