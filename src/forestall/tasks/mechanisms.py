"""A pool of mechanisms and noises, from which random structural models are drawn.

Every variable gets mean zero and unit spread, so that mechanisms compose: what they are
scaled by is measured on a pilot sample of their parents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from forestall.arrays import Array
from forestall.tasks.scm import Node, Noise, beta, exponential, normal, uniform

Shape = Callable[[Array], Array]


def _tame(p: Array) -> Array:
    """Leave what is usual as it is, and bound the rest: squares of squares explode."""
    return np.asarray(3.0 * np.tanh(p / 3.0))


SHAPES: Mapping[str, Shape] = {
    "linear": lambda p: p,
    "quadratic": lambda p: _tame(p) ** 2,
    "sine": lambda p: np.sin(1.5 * p),
    "tanh": lambda p: np.tanh(1.5 * p),
    "sigmoid": lambda p: expit(3.0 * (p - 0.5)),
    "softplus": lambda p: np.logaddexp(0.0, 2.0 * p),
}


def _standardised(noise: Noise, mean: float, sd: float) -> Noise:
    return lambda rng, n: (noise(rng, n) - mean) / sd


def _bimodal(rng: np.random.Generator, n: int) -> Array:
    # Half a spread of 0.9 between the modes leaves this much within each.
    return rng.choice([-0.9, 0.9], n) + np.sqrt(1.0 - 0.9**2) * rng.normal(size=n)


# All of mean zero and unit variance.
NOISES: Mapping[str, Noise] = {
    "normal": normal(1.0),
    "uniform": uniform(-np.sqrt(3.0), np.sqrt(3.0)),
    "exponential": _standardised(exponential(1.0), 1.0, 1.0),
    "beta": _standardised(beta(2.0, 5.0), 2.0 / 7.0, np.sqrt(10.0 / 392.0)),
    "bimodal": _bimodal,
}


@dataclass(frozen=True, eq=False)
class Term:
    """What one parent, or the product of two, adds to a variable.

    Args:
        parents: Places among the variable's parents.
        weight: What it is multiplied by.
        shape: The function of the parent; not used for a product or a category.
        levels: What each level of a category adds; empty for a number.
    """

    parents: tuple[int, ...]
    weight: float
    shape: Shape = SHAPES["linear"]
    levels: tuple[float, ...] = ()

    def __call__(self, parents: tuple[Array, ...]) -> Array:
        """Evaluate the term, in whatever shape its parents come."""
        # A fixed parent is a single number, and numpy makes a scalar of it.
        return np.asarray(self.weight * self._unweighted(parents))

    def _unweighted(self, parents: tuple[Array, ...]) -> Array:
        first = parents[self.parents[0]]
        if self.levels:
            return np.asarray(np.take(self.levels, np.asarray(first, dtype=int)))
        if len(self.parents) == 2:
            return np.asarray(_tame(first) * _tame(parents[self.parents[1]]))
        return np.asarray(self.shape(first))


@dataclass(frozen=True, eq=False)
class RandomMechanism:
    """Terms of the parents plus noise, standardised; cut into levels for a category.

    Args:
        terms: What the parents add.
        shift: Added to their sum, scaled.
        scale: What the sum is multiplied by.
        noise_scale: What the noise is multiplied by.
        louder_with: The place of the parent with which the noise grows, if any.
        cuts: Where a category's levels end; empty for a number.
    """

    terms: tuple[Term, ...]
    shift: float = 0.0
    scale: float = 1.0
    noise_scale: float = 1.0
    louder_with: int | None = None
    cuts: tuple[float, ...] = ()

    def __call__(self, *parents_and_noise: Array) -> Array:
        """Map the parents' values and the noise to the variable's value."""
        *parents, e = parents_and_noise
        mean = self.shift + self.scale * self.signal(tuple(parents))
        value = mean + self.noise_scale * self.loudness(tuple(parents)) * e
        if not self.cuts:
            return value
        return np.searchsorted(self.cuts, value).astype(np.float64)

    def signal(self, parents: tuple[Array, ...]) -> Array:
        """Add the terms up."""
        return np.asarray(sum(term(parents) for term in self.terms))

    def loudness(self, parents: tuple[Array, ...]) -> Array:
        """How loud the noise is, relative to other values of its parent."""
        if self.louder_with is None:
            return np.array(1.0)
        return np.asarray(0.3 + 1.4 * expit(2.0 * parents[self.louder_with]))


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a random variable is to be like.

    Args:
        name: The variable.
        parents: The variables that influence it.
        explained: The share of its variance that its parents explain.
        emphasis: Parents whose terms are to weigh more than the others'.
        n_levels: How many levels it has; 0 for a number.
    """

    name: str
    parents: tuple[str, ...]
    explained: tuple[float, float] = (0.3, 0.8)
    emphasis: tuple[str, ...] = ()
    n_levels: int = 0


def random_node(
    recipe: Recipe,
    pilot: Mapping[str, Float[Array, " n"]],
    n_levels: Mapping[str, int],
    rng: np.random.Generator,
) -> Node:
    """Draw a mechanism and a noise, and scale them to unit spread.

    Args:
        recipe: What the variable is to be like.
        pilot: A sample of the variables before it.
        n_levels: How many levels those have that are categories.
        rng: What decides.
    """
    noise = NOISES[str(rng.choice(list(NOISES)))]
    loud = [i for i, p in enumerate(recipe.parents) if p not in n_levels]
    draft = RandomMechanism(
        _random_terms(recipe, n_levels, rng),
        louder_with=int(rng.choice(loud)) if loud and rng.random() < 0.25 else None,
    )
    parents = tuple(pilot[p] for p in recipe.parents)
    mechanism = _scaled(draft, parents, rng.uniform(*recipe.explained))
    if recipe.n_levels:
        n = len(next(iter(pilot.values())))
        values = mechanism(*parents, noise(rng, n))
        mechanism = replace(mechanism, cuts=_cuts(values, recipe.n_levels, rng))
    return Node(recipe.name, noise, recipe.parents, mechanism)


def _random_terms(
    recipe: Recipe, n_levels: Mapping[str, int], rng: np.random.Generator
) -> tuple[Term, ...]:
    terms = []
    for i, parent in enumerate(recipe.parents):
        weight = rng.uniform(0.5, 1.2) * rng.choice([-1.0, 1.0])
        weight *= 1.5 if parent in recipe.emphasis else 1.0
        if levels := n_levels.get(parent, 0):
            terms.append(Term((i,), weight, levels=tuple(rng.normal(size=levels))))
        else:
            shape = SHAPES[str(rng.choice(list(SHAPES)))]
            terms.append(Term((i,), weight / _spread(shape), shape))
    numbers = [i for i, p in enumerate(recipe.parents) if p not in n_levels]
    if len(numbers) > 1 and rng.random() < 0.35:
        pair = rng.choice(numbers, 2, replace=False).tolist()
        terms.append(Term(tuple(pair), rng.uniform(0.5, 1.0) * rng.choice([-1.0, 1.0])))
    return tuple(terms)


def _spread(shape: Shape) -> float:
    """The spread of a shape over a parent of unit spread."""
    return float(shape(np.linspace(-2.0, 2.0, 41)).std())


def _scaled(
    draft: RandomMechanism, parents: tuple[Array, ...], explained: float
) -> RandomMechanism:
    """Give the variable unit spread, and its parents their share of it."""
    loudness = np.sqrt(np.mean(draft.loudness(parents) ** 2))
    if not draft.terms:
        return replace(draft, noise_scale=float(1.0 / loudness))
    signal = draft.signal(parents)
    scale = np.sqrt(explained) / signal.std()
    return replace(
        draft,
        shift=float(-scale * signal.mean()),
        scale=float(scale),
        noise_scale=float(np.sqrt(1.0 - explained) / loudness),
    )


def _cuts(
    values: Float[Array, " n"], n_levels: int, rng: np.random.Generator
) -> tuple[float, ...]:
    """Cut values into levels of which none is rare."""
    shares = 0.5 / n_levels + 0.5 * rng.dirichlet(np.full(n_levels, 3.0))
    return tuple(np.quantile(values, np.cumsum(shares)[:-1]).tolist())
