"""Kernels and penalties of a fit: by the median heuristic, or from the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.ascent import is_positive
from forestall.choice import Choice, Sharpness
from forestall.errors import SpecError, nearest
from forestall.kernels import Gaussian, median_bandwidth
from forestall.leaving import (
    DECIMALS,
    Inputs,
    coordinates,
    left_out,
    representative,
)
from forestall.observations import Observations
from forestall.region import Polytope
from forestall.solution import choose_sharpness, desirabilities
from forestall.tuning import tune

BLOCKS = ("context", "covariates", "actions", "embedding")
AUTO = "auto"
Bandwidth = float | Mapping[str, float] | str
# What the median heuristic is paired with where no penalty is given.
PENALTY = 1e-4
ETAS = (5.0, 10.0, 20.0)


@dataclass(frozen=True, eq=False)
class Setting:
    r"""All that a fit needs beside the records.

    Args:
        k_x: The factor of :math:`k_h` on contexts; ``k_u``, ``k_a`` likewise.
        k_e: The kernel on contexts that embeds :math:`U` given :math:`x` (stage 2).
        k_n: The kernel on contexts that predicts what happens without action.
        outcome_penalty: The penalty :math:`\lambda_h` of stage 1.
        context_penalty: The penalty :math:`\lambda_x` of stage 2.
        natural_penalty: The penalty of the regression without action.
        sharpness: The parameter :math:`\eta`.
        stretch: How much wider the actions' kernel is than by custom. The ascent's
            rate is meant for the custom, so it climbs in actions divided by this: a
            step that suits a wide kernel leaps over the tops of a narrow one.
        choice: Why, where the records have chosen.
    """

    k_x: Gaussian
    k_u: Gaussian
    k_a: Gaussian
    k_e: Gaussian
    k_n: Gaussian
    outcome_penalty: float
    context_penalty: float
    natural_penalty: float
    sharpness: float = ETAS[1]
    stretch: Float[Array, " d_a"] | float = 1.0
    choice: Choice | None = None

    @property
    def k_h(self) -> Gaussian:
        """The product kernel of stage 1."""
        return self.k_x * self.k_u * self.k_a


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a fit, and what is asked of them.

    Args:
        data: The records, standardised.
        adjusted: The covariates adjusted for.
        region: The desired region.
        counts: The number of all records, and of the good ones among them, where
            ``data`` is only a sample.
    """

    data: Observations
    adjusted: tuple[str, ...]
    region: Polytope
    counts: tuple[int, int] | None = None

    @property
    def n(self) -> int:
        """The number of all records."""
        return self.counts[0] if self.counts else self.data.n

    @property
    def share(self) -> float:
        """The share of good records."""
        n, good = self.counts or (self.data.n, self.data.good.sum())
        return float(good / n)

    @property
    def u(self) -> Float[Array, "n d_u"]:
        """The columns of the covariates adjusted for."""
        return self.data.covariate_columns(self.adjusted)

    @property
    def h(self) -> Float[Array, "n d_h"]:
        """Contexts, covariates and actions side by side."""
        return np.concatenate([self.data.x, self.u, self.data.a], axis=1)

    def taken(self, rows: Int[Array, " k"]) -> Records:
        """Restrict to some records."""
        data = self.data
        x, u, a, y = (v[rows] for v in (data.x, data.u, data.a, data.y))
        y_raw, good = data.y_raw[rows], data.good[rows]
        few = replace(data, x=x, u=u, a=a, y=y, y_raw=y_raw, good=good)
        return replace(self, data=few)

    def sampled(self) -> Records:
        """Restrict to as many records as a choice needs, whatever order they are in."""
        few = self.taken(representative(np.concatenate([self.h, self.data.y], axis=1)))
        data = few.data
        x, u, a, y = (v.round(DECIMALS) for v in (data.x, data.u, data.a, data.y))
        return replace(few, data=replace(data, x=x, u=u, a=a, y=y))

    def desirable(self, sharpness: float | None) -> Float[Array, "n k"]:
        r"""Evaluate the records at every :math:`\eta` in question.

        One metric is chosen for all of them: the same factor has to serve each, the
        indicator, and any other region that is asked for later.
        """
        etas = candidates(sharpness)
        return desirabilities(etas, self.region, self.data) / np.sqrt(len(etas))

    def probes(self) -> Float[Array, "p d_a"]:
        """Spread some 256 actions over the feasible box, on a grid."""
        lower, upper = self.data.schema.lower, self.data.schema.upper
        side = max(2, round(256 ** (1 / len(lower))))
        axes = np.linspace(lower, upper, side).T
        return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(lower))

    @property
    def owners(self) -> tuple[str, ...]:
        """The variable behind each column of ``h``."""
        schema = self.data.schema
        named = {column.name: column for column in schema.covariates.columns}
        adjusted = (named[name] for name in self.adjusted)
        columns = (*schema.context.columns, *adjusted, *schema.actions.columns)
        return tuple(column.name for column in columns for _ in range(column.width))

    def split(
        self, widths: Float[Array, " d_h"]
    ) -> tuple[Gaussian, Gaussian, Gaussian]:
        """Make the kernels on contexts, covariates and actions."""
        d_x, d_a = self.data.x.shape[1], self.data.a.shape[1]
        x, u, a = np.split(widths, [d_x, len(widths) - d_a])
        return Gaussian(x), Gaussian(u), Gaussian(a)


def settled(
    records: Records,
    bandwidth: Bandwidth,
    penalties: tuple[float | None, float | None],
    sharpness: float | None,
) -> Setting:
    """Settle what is not given, by the records or by custom."""
    if bandwidth == AUTO:
        return by_records(records, penalties, sharpness)
    outcome, context = (PENALTY if p is None else p for p in penalties)
    setting = by_median(records, factors(bandwidth), outcome, context)
    return sharpened(setting, records, sharpness)


def by_median(
    records: Records, factor: Mapping[str, float], outcome: float, context: float
) -> Setting:
    """Take multiples of median distances for widths, and the penalties as given."""
    on_x = median_bandwidth(records.data.x, 1.0)
    k_e = Gaussian(factor["embedding"] * on_x)
    return Setting(
        k_x=Gaussian(factor["context"] * on_x),
        k_u=Gaussian(median_bandwidth(records.u, factor["covariates"])),
        k_a=Gaussian(median_bandwidth(records.data.a, factor["actions"])),
        k_e=k_e,
        k_n=k_e,
        outcome_penalty=outcome,
        context_penalty=context,
        natural_penalty=context,
    )


def by_records(
    records: Records,
    penalties: tuple[float | None, float | None],
    sharpness: float | None,
) -> Setting:
    """Choose everything that is not given by leave-one-out error."""
    n, few = records.n, records.sampled()
    custom = by_median(records, factors(1.0), PENALTY, PENALTY)
    ratios = [None if p is None else n * p for p in penalties]
    h = Inputs(few.h, few.owners, custom.k_h.bandwidth)
    x = Inputs(few.data.x, few.owners[: few.data.x.shape[1]], custom.k_e.bandwidth)
    # In history an action can go along with the contexts so closely that it seems to
    # add nothing to them; but what it does is the question.
    kept = few.data.schema.actions.names
    w = few.desirable(sharpness)
    outcome = tune(h, w, usual=n * PENALTY, given=ratios[0], kept=kept)
    k_x, k_u, k_a = few.split(outcome.widths)
    hard = few.data.good.astype(float)[:, None]
    natural = tune(x, hard, usual=n * PENALTY, given=ratios[1])
    embedding = None
    if few.adjusted:
        phi = coordinates(k_u(few.u, few.u))
        embedding = tune(x, phi, usual=n * PENALTY, given=ratios[1])
    k_n = Gaussian(natural.widths)
    setting = Setting(
        k_x=k_x,
        k_u=k_u,
        k_a=k_a,
        k_e=Gaussian(embedding.widths) if embedding else k_n,
        k_n=k_n,
        outcome_penalty=outcome.penalty(n),
        context_penalty=(embedding or natural).penalty(n),
        natural_penalty=natural.penalty(n),
        stretch=k_a.bandwidth / custom.k_a.bandwidth,
        choice=Choice(outcome, embedding, natural, n, few.data.n),
    )
    return sharpened(setting, records, sharpness)


def sharpened(setting: Setting, records: Records, sharpness: float | None) -> Setting:
    r"""Choose :math:`\eta` for the region: by share, or by what the others predict."""
    if setting.choice is None:
        eta = choose_sharpness(records.share) if sharpness is None else sharpness
        return replace(setting, sharpness=eta)
    few = records.sampled()
    h, w = few.h, few.desirable(sharpness)
    told = w - left_out(setting.k_h(h, h), setting.choice.outcome.ratio, w)
    chosen = Sharpness.of(candidates(sharpness), told, few.data.good)
    choice = replace(setting.choice, sharpness=chosen)
    return replace(setting, sharpness=chosen.value, choice=choice)


def even(v: Float[Array, "n d"], most: int) -> Float[Array, "k d"]:
    """Take at most so many records, evenly along their sorted order."""
    n = len(v)
    return v if n <= most else v[np.lexsort(v.T[::-1])][:: -(-n // most)]


def candidates(sharpness: float | None) -> tuple[float, ...]:
    r"""The :math:`\eta` to choose from."""
    return ETAS if sharpness is None else (sharpness,)


def factors(bandwidth: Bandwidth) -> dict[str, float]:
    """Spell out one width factor for each block."""
    if isinstance(bandwidth, str):
        raise SpecError(
            f"Expected bandwidth 'auto', a factor, or a factor for each of "
            f"{', '.join(BLOCKS)}; got {bandwidth!r}.{nearest(bandwidth, (AUTO,))}"
        )
    if not isinstance(bandwidth, Mapping):
        bandwidth = dict.fromkeys(BLOCKS, bandwidth)
    for name, factor in bandwidth.items():
        if name not in BLOCKS:
            raise SpecError(
                f"Expected width factors for {', '.join(BLOCKS)}; got {name!r}."
                f"{nearest(name, BLOCKS)}"
            )
        if not is_positive(factor):
            raise SpecError(
                f"Expected a width factor above zero for {name!r}; got {factor!r}."
            )
    return {name: float(bandwidth.get(name, 1.0)) for name in BLOCKS}
