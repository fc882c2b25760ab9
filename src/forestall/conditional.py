"""The ablation: conditioning on the action instead of altering it."""

from __future__ import annotations

from dataclasses import dataclass

from forestall.identify import Identification
from forestall.nested import KernelRehearsal


@dataclass(frozen=True, kw_only=True)
class ConditionalRehearsal(KernelRehearsal):
    r"""The single estimator of :math:`E[w_\eta(Y) \mid x, a]`, without adjustment.

    It mistakes what goes along with an action for what the action does, wherever a
    covariate influences both the action and the outcome: here to be compared with.
    """

    def adjusted(self, identification: Identification) -> tuple[str, ...]:
        """Adjust for nothing."""
        del identification
        return ()
