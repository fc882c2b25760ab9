"""Adam on the actions, from several starts, inside their box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.baselines.flow import own_torch
from forestall.baselines.flow_system import FlowSystem
from forestall.baselines.losses import Goal

# Starts keep this far from the ends of the box, where the slope of tanh vanishes.
INSIDE = 0.95
# Draws with which possible starts are screened.
SCREENED = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Descent:
    r"""Descends a loss over :math:`t`, where :math:`z = (u-l)/2 \tanh t + (u+l)/2`.

    Args:
        system: The fitted flows.
        goal: The desired region.
        lower: The lowest feasible actions :math:`l`, standardised.
        upper: The highest, :math:`u`.
        starts: Possible starts; those of lowest loss are taken.
        loss: Which loss.
        select: ``"success"`` or ``"loss"``: what the best iterate is best by.
        n_starts: How many starts.
        n_steps: How many steps.
        step_size: The first step in :math:`t`; they shrink to zero.
    """

    system: FlowSystem
    goal: Goal
    lower: Float[Array, " d_a"]
    upper: Float[Array, " d_a"]
    starts: Float[Array, "m d_a"]
    loss: str
    select: str
    n_starts: int
    n_steps: int
    step_size: float

    def __call__(
        self, x: Float[Array, "q d_x"], noise: Float[Array, "r v"]
    ) -> Float[Array, "q d_a"]:
        """Find an action for each context; none depends on another's."""
        with own_torch(0) as torch:
            x_, e = torch.tensor(x), torch.tensor(noise)
            z = self._screened(torch, x_, e[:SCREENED])
            x_ = x_.repeat_interleave(z.shape[1], dim=0)
            best = self._descended(torch, x_, z.flatten(0, 1), e)
        z, success, loss = (np.stack(np.split(part, len(x))) for part in best)
        order = np.lexsort((loss, -success * (self.select == "success")))
        return z[np.arange(len(x)), order[:, 0]]

    def value(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"], noise: Array
    ) -> tuple[Float[Array, " q"], Float[Array, "q d_a"]]:
        """Evaluate the loss of each action, and its gradient."""
        with own_torch(0) as torch:
            e, z = torch.tensor(noise), torch.tensor(a, requires_grad=True)
            settled = self.system.settled(torch.tensor(x), e)
            loss = self.goal.loss(self.loss, self.system.altered(settled, z, e))
            (slope,) = torch.autograd.grad(loss.sum(), z)
            return loss.detach().numpy(), slope.numpy()

    def _screened(self, torch: Any, x: Any, e: Any) -> Any:
        """Take the possible starts of lowest loss, shape (q, n_starts, d_a)."""
        starts = torch.tensor(self.starts)
        with torch.no_grad():
            settled = self.system.settled(x, e)
            losses = [
                self.goal.loss(
                    self.loss, self.system.altered(settled, z.expand(len(x), -1), e)
                )
                for z in starts
            ]
        order = torch.stack(losses, dim=1).argsort(dim=1, stable=True)
        return starts[order[:, : self.n_starts]]

    def _descended(self, torch: Any, x: Any, z: Any, e: Any) -> tuple[Array, ...]:
        """Keep the best iterate of each row: action, success, loss."""
        half, middle = self._box(torch)
        t = ((z - middle) / half).clamp(-INSIDE, INSIDE).atanh().requires_grad_()
        optimizer = torch.optim.Adam([t], lr=self.step_size)
        with torch.no_grad():
            settled = self.system.settled(x, e)
        best = _Best(torch, z)
        for step in range(self.n_steps + 1):
            z = half * t.tanh() + middle
            y = self.system.altered(settled, z, e)
            loss = self.goal.loss(self.loss, y)
            with torch.no_grad():
                success = self.goal.success(y)
                best.offer(z, success, loss, self.select == "success")
            if step == self.n_steps:
                break
            optimizer.param_groups[0]["lr"] = self.step_size * _rate(step, self.n_steps)
            (t.grad,) = torch.autograd.grad(loss.sum(), t)
            optimizer.step()
        return tuple(part.numpy() for part in (best.z, best.success, best.loss))

    def _box(self, torch: Any) -> tuple[Any, Any]:
        # An interval of no width would divide by zero.
        half = np.maximum(0.5 * (self.upper - self.lower), 1e-12)
        return torch.tensor(half), torch.tensor(0.5 * (self.lower + self.upper))


def _rate(step: int, n_steps: int) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * step / n_steps))


class _Best:
    """The best iterate of each row so far."""

    def __init__(self, torch: Any, z: Any) -> None:
        self.torch, self.z = torch, z.detach().clone()
        self.success = torch.full((len(z),), -math.inf)
        self.loss = torch.full((len(z),), math.inf)

    def offer(self, z: Any, success: Any, loss: Any, by_success: bool) -> None:
        lower = loss < self.loss
        better = lower
        if by_success:
            tie = (success == self.success) & lower
            better = (success > self.success) | tie
        self.z = self.torch.where(better[:, None], z, self.z)
        self.success = self.torch.where(better, success, self.success)
        self.loss = self.torch.where(better, loss, self.loss)
