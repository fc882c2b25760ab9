"""The linear systems of a kernel method, factored once and solved for many contexts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.ridge import Ridge
from forestall.setting import Records, Setting
from forestall.solution import Solution


@dataclass(frozen=True, eq=False)
class Systems:
    r"""Two or three Cholesky factors and what surrounds them.

    Args:
        setting: Kernels, penalties and sharpness.
        x: The contexts of the records.
        u: The covariates adjusted for; no columns when there are none.
        K_uu: The Gram matrix of ``u``; ``None`` when there is nothing to adjust for.
        inner: :math:`K_{hh} + N \lambda_h I`, factored.
        outer: :math:`K_{xx} + N \lambda_x I`, factored.
        natural: The same for the regression without action; the same object where
            their kernel is the same.
    """

    setting: Setting
    x: Float[Array, "n d_x"]
    u: Float[Array, "n d_u"]
    K_uu: Float[Array, "n n"] | None
    inner: Ridge
    outer: Ridge
    natural: Ridge

    @classmethod
    def factored(cls, setting: Setting, records: Records) -> Systems:
        """Factor the systems (algorithm 1, phase 1)."""
        x, u, h = records.data.x, records.u, records.h
        inner = Ridge.of(setting.k_h(h, h), setting.outcome_penalty)
        outer = Ridge.of(setting.k_e(x, x), setting.context_penalty)
        natural = outer
        if setting.k_n is not setting.k_e:
            natural = Ridge.of(setting.k_n(x, x), setting.natural_penalty)
        K_uu = setting.k_u(u, u) if u.shape[1] else None
        return cls(setting, x, u, K_uu, inner, outer, natural)

    def solved(self, records: Records) -> Solution:
        """Solve them for the desired region."""
        eta, inner, natural = self.setting.sharpness, self.inner, self.natural
        return Solution.of(eta, records.region, records.data, inner, natural)

    def reach(
        self, x: Float[Array, "q d_x"]
    ) -> tuple[Float[Array, "n q"], Float[Array, " q"]]:
        r"""Weigh the records by context and adjustment: :math:`\omega / \alpha`.

        Also gives the prior variance :math:`\gamma^\top K_{uu} \gamma` that the
        averaged function has, relative to that of a single one.
        """
        k_x = self.setting.k_x(self.x, x)
        if self.K_uu is None:
            return k_x, np.ones(len(x))
        gamma = self.outer.solve(self.setting.k_e(self.x, x))
        adjustment = self.K_uu @ gamma
        # Far from all contexts gamma vanishes: the mass of U that no record speaks for
        # is unknown altogether.
        unknown = 1.0 - np.clip(gamma.sum(axis=0), 0.0, 1.0)
        prior = np.einsum("nq,nq->q", gamma, adjustment) + unknown**2
        return k_x * adjustment, prior
