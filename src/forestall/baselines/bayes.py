"""What the records leave open about a linear equation, by Bayesian ridge regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.baselines.linear_gaussian import LEAST, Coefficients, LinearGaussian


@dataclass(frozen=True, eq=False)
class Belief:
    """The posterior law of one equation.

    Args:
        slopes: The mean of the slopes.
        covariance: Their covariance.
        z_mean: The mean of the recorded inputs.
        v_mean: The mean of the recorded targets.
        sd: The standard deviation of the noise.
        n: The number of records.
    """

    slopes: Float[Array, " p"]
    covariance: Float[Array, "p p"]
    z_mean: Float[Array, " p"]
    v_mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, z: Float[Array, "n p"], v: Float[Array, " n"]) -> Belief:
        """Regress ``v`` on ``z``."""
        n, p = z.shape
        z_mean, v_mean = z.mean(axis=0), float(v.mean())
        left = v - v_mean
        if p == 0:
            sd = float(np.sqrt(left @ left / max(n - 1, 1)))
            nothing = np.empty((0, 0))
            return cls(np.empty(0), nothing, z_mean, v_mean, max(sd, LEAST), n)
        # Loading scikit-learn takes seconds: only where it is needed.
        from sklearn.linear_model import BayesianRidge

        fit = BayesianRidge(fit_intercept=False).fit(z - z_mean, left)
        # A target without noise has infinite precision.
        sd = max(float(1.0 / np.sqrt(max(fit.alpha_, 1e-300))), LEAST)
        return cls(fit.coef_, fit.sigma_, z_mean, v_mean, sd, n)

    def drawn(self, e: Float[Array, "s p"]) -> Float[Array, "s p"]:
        """Turn standard noise into slopes."""
        values, axes = np.linalg.eigh(self.covariance)
        return self.slopes + e * np.sqrt(np.maximum(values, 0.0)) @ axes.T

    def intercepts(
        self, slopes: Float[Array, "*s p"], e: Float[Array, "*s"]
    ) -> Float[Array, "*s"]:
        """The intercepts that go with slopes; the level is unknown by itself."""
        level = self.v_mean + e * self.sd / np.sqrt(self.n)
        return np.asarray(level - slopes @ self.z_mean)

    def surprise(self, z: Float[Array, "m p"]) -> Float[Array, " m"]:
        r"""How uncertain the mean at each input is, in variances of the noise.

        A record there brings :math:`\tfrac12 \log(1 + s)` of information.
        """
        off = z - self.z_mean
        spread = np.einsum("mp,pr,mr->m", off, self.covariance, off)
        return 1.0 / self.n + spread / self.sd**2


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What is believed of every equation of a model.

    Args:
        equations: One belief for each equation.
    """

    equations: tuple[Belief, ...]

    @classmethod
    def of(cls, model: LinearGaussian, n_natural: int) -> Beliefs:
        """Learn every equation.

        Args:
            model: The model, with its records.
            n_natural: So many records, the first ones, came by their natural course;
                in the others the actions were set, which says nothing of what they
                naturally follow from.
        """
        rows = [n_natural if e.action is not None else None for e in model.equations]
        return cls(
            tuple(
                Belief.of(model.inputs_of(e)[:k], model.targets_of(e)[:k])
                for e, k in zip(model.equations, rows, strict=True)
            )
        )

    def mean(self, model: LinearGaussian) -> Coefficients:
        """The mean of the coefficients."""
        return model.coefficients(
            [each.intercepts(each.slopes, np.zeros(())) for each in self.equations],
            [each.slopes for each in self.equations],
            [each.sd for each in self.equations],
        )

    def drawn(
        self, model: LinearGaussian, n: int, rng: np.random.Generator
    ) -> Coefficients:
        """Draw ``n`` sets of coefficients."""
        slopes, intercepts = [], []
        for each in self.equations:
            slopes.append(each.drawn(rng.standard_normal((n, len(each.slopes)))))
            intercepts.append(each.intercepts(slopes[-1], rng.standard_normal(n)))
        sds = [np.full(n, each.sd) for each in self.equations]
        return model.coefficients(intercepts, slopes, sds)
