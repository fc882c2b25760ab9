"""Structural models: who is made of whom, sampled as they are or after do().

Each variable draws its own noise from its own stream, so that with one seed the noise
is the same whatever is altered: two alterations differ by their effect alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import SpecError, nearest

Noise = Callable[[np.random.Generator, int], Array]
Mechanism = Callable[..., Array]
Values = Mapping[str, "float | Array"]


def normal(sd: float) -> Noise:
    """Centred Gaussian noise, by its standard deviation."""
    return lambda rng, n: rng.normal(0.0, sd, n)


def uniform(lower: float, upper: float) -> Noise:
    """Noise spread evenly over an interval."""
    return lambda rng, n: rng.uniform(lower, upper, n)


def beta(a: float, b: float) -> Noise:
    """Beta noise, on the unit interval."""
    return lambda rng, n: rng.beta(a, b, n)


def exponential(mean: float) -> Noise:
    """Exponential noise, by its mean."""
    return lambda rng, n: rng.exponential(mean, n)


def noise_itself(noise: Array) -> Array:
    """The mechanism of a root."""
    return noise


@dataclass(frozen=True)
class Node:
    """One variable and the mechanism that makes it.

    Args:
        name: The variable.
        noise: Draws ``n`` values of its exogenous noise.
        parents: The variables that influence it.
        mechanism: Maps the parents' values, in the order of ``parents``, and then the
            noise, to the value; it works elementwise and broadcasts.
    """

    name: str
    noise: Noise
    parents: tuple[str, ...] = ()
    mechanism: Mechanism = noise_itself


def linear(
    name: str, noise: Noise, weights: Mapping[str, float], intercept: float = 0.0
) -> Node:
    """Make a node that is a weighted sum of its parents, plus noise."""
    w = tuple(weights.values())

    def mechanism(*parents_and_noise: Array) -> Array:
        *parents, noise = parents_and_noise
        # The terms are added before the noise: they are often of a smaller shape.
        total = sum((a * p for a, p in zip(w, parents, strict=True)), intercept)
        return total + noise

    return Node(name, noise, tuple(weights), mechanism)


@dataclass(frozen=True)
class StructuralModel:
    r"""Variables in an order in which parents come first.

    Args:
        nodes: The variables; each one's parents stand before it.

    Example:
        >>> model = StructuralModel((
        ...     Node("x", uniform(0.0, 1.0)),
        ...     Node("y", normal(0.1), ("x",), lambda x, e: 2.0 * x + e),
        ... ))
        >>> as_it_is = model.sample(3, np.random.default_rng(0))
        >>> altered = model.sample(3, np.random.default_rng(0), do={"x": 1.0})
        >>> bool(np.allclose(altered["y"] - as_it_is["y"], 2.0 * (1.0 - as_it_is["x"])))
        True
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Check that every parent stands before its children."""
        seen: list[str] = []
        for node in self.nodes:
            if node.name in seen:
                raise SpecError(f"Expected each node once; got {node.name!r} twice.")
            late = [p for p in node.parents if p not in seen]
            if late:
                raise SpecError(
                    f"Expected the parents of {node.name!r} before it; got {late[0]!r} "
                    f"not among {seen}. Move or add it."
                )
            seen.append(node.name)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, parents first."""
        return tuple(node.name for node in self.nodes)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Every pair of a parent and its child."""
        return tuple((p, node.name) for node in self.nodes for p in node.parents)

    def draw(self, n: int, rng: np.random.Generator) -> dict[str, Float[Array, " n"]]:
        """Draw every variable's noise, each from its own stream."""
        streams = rng.spawn(len(self.nodes))
        pairs = zip(self.nodes, streams, strict=True)
        return {node.name: node.noise(stream, n) for node, stream in pairs}

    def propagate(
        self, noise: Mapping[str, Array], fixed: Values, upto: str | None = None
    ) -> dict[str, Array]:
        """Compute every variable from the noise, with some of them held fixed.

        Fixed values broadcast against the noise: ``m`` candidates of shape ``(m, 1)``
        meet the same ``n`` draws. What they do not influence keeps its smaller shape.
        With ``upto``, what comes after that variable is left out.
        """
        values: dict[str, Array] = {}
        for node in self.nodes:
            if node.name in fixed:
                values[node.name] = np.asarray(fixed[node.name], dtype=np.float64)
            else:
                parents = (values[p] for p in node.parents)
                values[node.name] = node.mechanism(*parents, noise[node.name])
            if node.name == upto:
                break
        return values

    def sample(
        self,
        n: int,
        rng: np.random.Generator,
        do: Values | None = None,
        given: Values | None = None,
    ) -> dict[str, Float[Array, " n"]]:
        """Sample all variables.

        Args:
            n: How many draws.
            rng: Where the noise comes from; the same state gives the same noise for
                each variable, whatever is altered or given.
            do: Values to which variables are set, cut off from their parents.
            given: Values seen. What is seen must come with all that influences it:
                then, and only then, conditioning on it is holding it fixed.
        """
        do, given = do or {}, given or {}
        self._check_known(do, given)
        self.check_given(given)
        values = self.propagate(self.draw(n, rng), {**given, **do})
        return {name: np.broadcast_to(v, n).copy() for name, v in values.items()}

    def check_given(self, given: Values) -> None:
        """Raise unless whatever influences a given variable is given too."""
        for parent, child in self.edges:
            if child in given and parent not in given:
                raise SpecError(
                    f"Expected {parent!r} to be given, because it influences "
                    f"{child!r}, which is; got only {sorted(given)}. Give it too."
                )

    def _check_known(self, do: Values, given: Values) -> None:
        for name in (*do, *given):
            if name not in self.names:
                raise SpecError(
                    f"Expected variables of the model, {', '.join(self.names)}; got "
                    f"{name!r}.{nearest(name, self.names)}"
                )
        both = sorted(set(do) & set(given))
        if both:
            raise SpecError(
                f"Expected a variable to be given or set; got {both[0]!r} as both. "
                f"Keep one."
            )
