"""The classes that a saved policy may consist of: these, and no others.

A file names classes, and nothing is imported because a file says so: a name is looked
up here, or refused.
"""

from __future__ import annotations

import importlib
from typing import Any

CLASSES = {
    "ascent": ("Ascent",),
    "baselines.bayes": ("Belief", "Beliefs"),
    "baselines.care": ("CARE",),
    "baselines.drift": ("Drift",),
    "baselines.flow": ("ConditionalFlow", "Training"),
    "baselines.flow_system": ("FlowSystem", "Stage"),
    "baselines.grad_rehearsal": ("GradPolicy", "GradRehearsal"),
    "baselines.linear_gaussian": ("Coefficients", "Equation", "LinearGaussian"),
    "baselines.linear_optimal": ("LinearOptimal",),
    "baselines.linear_policy": ("LinearPolicy",),
    "baselines.micns": ("MICNS", "MICNSPolicy"),
    "baselines.no_action": ("NoActionPolicy",),
    "baselines.qwz23": ("QWZ23", "QWZ23Policy"),
    "choice": ("Choice", "Sharpness"),
    "coin": ("Coin",),
    "conditional": ("ConditionalRehearsal",),
    "encoding": ("Block", "Categorical", "Numeric"),
    "expansion": ("Basis",),
    "fork": ("Fork", "Way"),
    "hills": ("Hills",),
    "history": ("Fingerprint",),
    "kernels": ("Gaussian",),
    "landmarks": ("Landmarks",),
    "law": ("Distortion", "Features", "Law", "Spread"),
    "loudness": ("Loudness", "Terms"),
    "lowrank": ("Nystrom", "Plan", "RandomFourier"),
    "mechanism": ("Mechanism",),
    "nested": ("KernelPolicy", "NestedRehearsal"),
    "observations": ("Observations", "Schema"),
    "problem": ("Problem",),
    "reduced": ("LowRank", "Normal"),
    "region": ("Polytope",),
    "rehearsal": ("Node", "Outcome", "Rehearsal"),
    "ridge": ("Ridge",),
    "scale.groups": ("Grouped",),
    "search": ("Search",),
    "select": ("Choice",),
    "setting": ("Records", "Setting"),
    "solution": ("Solution",),
    "staged": ("StagedPolicy", "StagedRehearsal"),
    "support": ("Horizon", "Support"),
    "systems": ("Exact",),
    "thin": ("Above", "Thick", "Thin", "ThinRidge"),
    "tuning": ("Relevance", "Tuned"),
}

KNOWN = frozenset(f"{home}.{name}" for home, names in CLASSES.items() for name in names)


def known_name(kind: type) -> str | None:
    """Name a class as files do; ``None`` for one that must not be in a file."""
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("forestall.")
    return name if name in KNOWN else None


def known_class(name: str) -> type[Any] | None:
    """Look up a class by that name; ``None`` for any other name."""
    if name not in KNOWN:
        return None
    home, _, own = name.rpartition(".")
    found: type[Any] = getattr(importlib.import_module(f"forestall.{home}"), own)
    return found
