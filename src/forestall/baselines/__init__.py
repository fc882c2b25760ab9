"""Methods to compare with."""

from forestall.baselines.no_action import NoAction

__all__ = ["NoAction"]
