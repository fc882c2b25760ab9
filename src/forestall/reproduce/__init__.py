"""Every table and figure of the paper, by one command each, from committed plans.

``forestall reproduce table1 --quick`` in Python:

    from forestall.reproduce import run
    run(["table1"], quick=True)
"""

from __future__ import annotations

from forestall.reproduce.page import render
from forestall.reproduce.steps import STEPS, run

__all__ = ["run", "render", "STEPS"]
