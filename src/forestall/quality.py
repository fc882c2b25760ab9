"""How well each mechanism was learned: left-out error, calibration, what matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from forestall.arrays import Array
from forestall.coin import Coin
from forestall.encoding import Block
from forestall.fork import Fork
from forestall.law import Law
from forestall.mechanism import Mechanism
from forestall.observations import Observations
from forestall.overlap import Part, parts_of, thirds
from forestall.polynomials import polynomials
from forestall.rehearsal import Rehearsal
from forestall.simulate import cumulated

# An input that moves less than this share of the mean's variance is irrelevant, unless
# what it moves is as large as half the deviation of the noise, and no rounding error.
IRRELEVANT = 0.01
LOUD, ROUNDING = 0.25, 1e-6
# A law is learned less sharply than a mean: of its variation more than this must move.
MOVES_LAW = 0.2
# A law whose quantiles vary by less than this share of its width does not change.
CHANGES = 0.1
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
# Predictions must be better than the mean by this many standard errors.
SURE = 2.0
# An input that the other inputs explain to this share cannot be told from them.
DETERMINED = 0.9
# A mean of which this share is linear is called linear; and so for curved. What is not
# must be less than half the deviation of the noise, too.
SHAPED = 0.98
CENTRAL = 0.9
# A variance below this is none: its share would be rounding.
NOTHING = 1e-12
# Parts of the records smaller than this are not judged; those judged are called odd
# where chance would make them so once in 15,000 times.
JUDGED, ODD = 30, 4.0
# Records and permutations that settle what matters.
RECORDS, PERMUTATIONS = 500, 4
SHAPES = ("constant", "linear", "curved", "bends")


@dataclass(frozen=True)
class Input:
    """What one input does to a mechanism.

    Args:
        name: The input.
        mean: The share of the fitted mean's variance that it moves.
        law: The share of the variance of its law's quantiles that it moves.
        determined: How far the other inputs explain it, linearly.
        beside: The variance that it moves, as a share of that of the noise.
    """

    name: str
    mean: float
    law: float
    determined: float
    beside: float = 0.0

    @property
    def moves(self) -> bool:
        """Whether it moves the mean, by what that varies or beside the noise."""
        heard = self.beside >= LOUD and self.mean >= ROUNDING
        return self.mean >= IRRELEVANT or heard

    @property
    def irrelevant(self) -> bool:
        """Whether the mechanism hardly changes with it."""
        return not self.moves and self.law < MOVES_LAW


@dataclass(frozen=True)
class Misjudged:
    """Records for which a law is clearly wrong.

    Args:
        where: Which records; empty where it is all of them.
        records: How many they are.
        inside: The share of them in the central 90 % of the law.
        fault: ``"too narrow"``, ``"too wide"``, ``"too low"`` or ``"too high"``.
    """

    where: str
    records: int
    inside: float
    fault: str


@dataclass(frozen=True)
class Fit:
    """How well one mechanism was learned, by records left out.

    Args:
        name: The variable.
        role: Its role in the problem.
        explained: The share of its variance that is predicted (left-out R squared).
        predicted: Whether that is more than chance.
        deviation: The standard deviation of what is not, in the user's unit; ``None``
            for a category.
        inside: The share of records in the central 90 % of the law given the inputs.
        distance: How far their levels are from uniform (Kolmogorov and Smirnov).
        misjudged: Where the law is most clearly too wide or too narrow, if anywhere.
        shape: ``"constant"``, ``"linear"``, ``"curved"`` or ``"bends"``.
        law_changes: Whether the law changes with the inputs, beside its mean.
        inputs: What each input does.
        n_ways: How many ways a fork has, with nothing between them; 1 without a fork.
    """

    name: str
    role: str
    explained: float
    predicted: bool
    deviation: float | None
    inside: float
    distance: float
    misjudged: Misjudged | None
    shape: str
    law_changes: bool
    inputs: tuple[Input, ...]
    n_ways: int

    @property
    def relevant(self) -> tuple[str, ...]:
        """The inputs that move its mean, the strongest first."""
        ordered = sorted(self.inputs, key=lambda each: -each.mean)
        return tuple(each.name for each in ordered if each.moves)

    @property
    def movers(self) -> tuple[str, ...]:
        """The inputs that change its law beside its mean."""
        return tuple(each.name for each in self.inputs if each.law >= MOVES_LAW)

    @property
    def irrelevant(self) -> tuple[str, ...]:
        """The inputs that do neither."""
        return tuple(each.name for each in self.inputs if each.irrelevant)


@dataclass(frozen=True, eq=False)
class Learned:
    """One mechanism beside the records it was learned from, in standard units.

    Args:
        name: The variable.
        role: Its role in the problem.
        z: The inputs.
        values: The variable; a column for each level of a category.
        mechanisms: Its mean, or the share of each level.
        law: How it strays; ``None`` for a category.
        scale: What one standard unit is in the user's.
        groups: The columns of each input variable.
        inputs: The records split by each input.
        predictions: The records split by what is predicted.
    """

    name: str
    role: str
    z: Float[Array, "n d"]
    values: Float[Array, "n k"]
    mechanisms: tuple[Mechanism, ...]
    law: Law | Coin | Fork | None
    scale: float
    groups: dict[str, Int[Array, " g"]]
    inputs: tuple[Part, ...]
    predictions: tuple[Part, ...]

    @cached_property
    def left(self) -> Float[Array, "n k"]:
        """How far each record does not move its own prediction, 0 to 1."""
        moves = np.stack([m.leverage for m in self.mechanisms], axis=1)
        return 1.0 - moves

    @cached_property
    def residuals(self) -> Float[Array, "n k"]:
        """What the other records do not predict, in closed form."""
        return (self.values - self.means(self.z)) / self.left

    @cached_property
    def levels(self) -> Float[Array, " n"]:
        """Where in its law each left-out record lies, 0 to 1: uniform when right."""
        told = self.values - self.residuals
        if isinstance(self.law, Coin):
            heads = (told - self.law.low) / (self.law.high - self.law.low)
            tossed = (self.values[:, 0] > self.law.low).astype(int)
            return within_steps(tossed, np.concatenate([1.0 - heads, heads], axis=1))
        if self.law is not None:
            return self._within_ties()
        return within_steps(self.values.argmax(axis=1), told)

    def _within_ties(self) -> Float[Array, " n"]:
        """The level of a number, at a random place within the step of its value."""
        assert self.law is not None
        mean = self.means(self.z)[:, 0]
        # The law is that of the noise; the mean's own error is taken out. Of a fork the
        # common mean is no part: its ways have means of their own.
        noise = (self.residuals * np.sqrt(self.left))[:, 0]
        if isinstance(self.law, Fork):
            noise = self.values[:, 0] - mean
        law = self.law.at(self.z, 0, mean)
        low, high = (law.cdf(noise + end) for end in steps(self.values[:, 0]))
        return low + np.random.default_rng(0).random(len(low)) * (high - low)

    def means(self, z: Float[Array, "m d"]) -> Float[Array, "m k"]:
        """Evaluate the fitted means."""
        zero = np.array([0])
        means = np.concatenate([m(z, zero) for m in self.mechanisms], axis=1)
        return self.law.mean(means) if isinstance(self.law, Coin) else means

    def fit(self) -> Fit:
        """Say how well it was learned."""
        explained, predicted = self.explained[0], self.predicted
        inside = np.abs(self.levels - 0.5) <= CENTRAL / 2
        deviation = float(self.residuals.std()) * self.scale
        return Fit(
            self.name,
            self.role,
            explained,
            predicted,
            None if self.law is None else deviation,
            float(inside.mean()),
            distance_from_uniform(self.levels),
            self._misjudged(inside),
            self._shape(),
            self._law_changes(),
            self._inputs(predicted),
            self.law.n_ways if isinstance(self.law, Fork) else 1,
        )

    def odd_part(self) -> Part | None:
        """Find the records for which the law is most clearly wrong, if any."""
        big = [part for part in self._parts() if part.rows.sum() >= JUDGED]
        oddness = [_oddness(self.levels[part.rows]) for part in big]
        if not big or max(oddness) < ODD:
            return None
        return big[int(np.argmax(oddness))]

    def _parts(self) -> tuple[Part, ...]:
        """The records in parts; what predicts nothing splits none of them."""
        if self.predicted:
            return (*self.inputs, *self.predictions)
        return (*self.inputs, Part("", np.ones(len(self.z), dtype=bool)))

    def _misjudged(self, inside: Array) -> Misjudged | None:
        part = self.odd_part()
        if part is None:
            return None
        return Misjudged(
            part.where,
            int(part.rows.sum()),
            float(inside[part.rows].mean()),
            _fault(self.levels[part.rows]),
        )

    @property
    def predicted(self) -> bool:
        """Whether anything that precedes it predicts it, more than by chance."""
        explained, sure = self.explained
        return explained >= IRRELEVANT and sure

    @cached_property
    def explained(self) -> tuple[float, bool]:
        """The share of the variance that is predicted, and whether it is sure."""
        n = len(self.values)
        mean_only = (self.values - self.values.mean(axis=0)) * n / max(n - 1, 1)
        before = (mean_only**2).sum(axis=1)
        gain = before - (self.residuals**2).sum(axis=1)
        share = float(gain.mean() / before.mean()) if before.any() else 0.0
        return share, bool(gain.mean() > SURE * gain.std() / np.sqrt(n))

    def _inputs(self, predicted: bool) -> tuple[Input, ...]:
        rows = np.linspace(0, len(self.z) - 1, min(len(self.z), RECORDS)).astype(int)
        z = self.z[rows]
        # A mean that predicts nothing is moved by nothing that could matter.
        changes = self._law_changes()
        noise = float(self.residuals.var(axis=0).sum())
        beside = float(self.means(z).var(axis=0).sum()) / max(noise, NOTHING)
        found = []
        for name, columns in self.groups.items():
            mean = moved(self.means, z, columns) if predicted else 0.0
            law = moved(self._quantiles, z, columns) if changes else 0.0
            known = _determined(z, columns)
            found.append(Input(name, mean, law, known, mean * beside))
        return tuple(found)

    def _shape(self) -> str:
        """Name the shape of the mean; of several, the least simple."""
        noise = self.residuals.var(axis=0)
        if isinstance(self.law, Coin):
            # What is linear are log odds, which have no noise beside them.
            noise = np.full(1, np.inf)
        pairs = zip(self.mechanisms, noise, strict=True)
        return max((_shape(m, self.z, v) for m, v in pairs), key=SHAPES.index)

    def _law_changes(self) -> bool:
        if self.law is None or isinstance(self.law, Coin):
            return False
        quantiles = self._quantiles(self.z)
        width = float((quantiles[:, -1] - quantiles[:, 0]).mean())
        return float(quantiles.std(axis=0).max()) > CHANGES * width

    def _quantiles(self, z: Float[Array, "m d"]) -> Float[Array, "m q"]:
        assert self.law is not None
        at = self.law.at(z, 0, self.means(z)[:, 0])
        return np.stack([at.quantile(np.full(len(z), u)) for u in QUANTILES], axis=1)


def learned(system: Rehearsal, data: Observations) -> tuple[Learned, ...]:
    """Put every mechanism beside its records."""
    return _Reader(system, data).all()


class _Reader:
    """Knows what stands in which column of the state."""

    def __init__(self, system: Rehearsal, data: Observations) -> None:
        self.system, self.data, schema = system, data, data.schema
        self.state = np.concatenate([data.x, data.u, data.a, data.y], axis=1)
        roles = ("context", "covariates", "actions", "outcomes")
        self.columns: dict[str, Int[Array, " g"]] = {}
        self.parts: dict[str, tuple[Part, ...]] = {}
        self.scales: dict[str, float] = {}
        start = 0
        for role in roles:
            block: Block = getattr(schema, role)
            for column in block.columns:
                place = np.arange(start, start + column.width)
                start += column.width
                self.columns[column.name] = place
                alone = Block((column,))
                self.parts[column.name] = parts_of(alone, self.state[:, place])
                self.scales[column.name] = float(alone.scales[0])

    def all(self) -> tuple[Learned, ...]:
        found = [
            self._learned(
                node.name,
                "covariate" if node.action is None else "action",
                node.inputs,
                node.mechanisms,
                node.law,
            )
            for node in self.system.nodes
        ]
        names = self.data.schema.outcomes.names
        for name, outcome in zip(names, self.system.outcomes, strict=True):
            one = (outcome.mechanism,)
            found.append(
                self._learned(name, "outcome", outcome.inputs, one, outcome.law)
            )
        return tuple(found)

    def _learned(
        self,
        name: str,
        role: str,
        inputs: Int[Array, " d"],
        mechanisms: tuple[Mechanism, ...],
        law: Law | Coin | Fork | None,
    ) -> Learned:
        place = {int(column): k for k, column in enumerate(inputs)}
        groups = {
            v: np.array([place[c] for c in columns.tolist()])
            for v, columns in self.columns.items()
            if int(columns[0]) in place
        }
        z, values = self.state[:, inputs], self.state[:, self.columns[name]]
        predictions: list[Part] = []
        if law is not None:
            predicted = mechanisms[0](z, np.array([0]))[:, 0]
            if isinstance(law, Coin):
                predicted = law.mean(predicted)
            if isinstance(law, Fork):
                predicted = predicted + law.at(z, 0, predicted).middle
            in_units = self._in_units(name, predicted)
            predictions = thirds(f"predicted {name}", in_units)
        return Learned(
            name,
            role,
            z,
            values,
            mechanisms,
            law,
            self.scales[name],
            groups,
            tuple(part for v in groups for part in self.parts[v]),
            tuple(predictions),
        )

    def _in_units(self, name: str, values: Float[Array, " n"]) -> Float[Array, " n"]:
        schema = self.data.schema
        for block in (schema.covariates, schema.actions, schema.outcomes):
            if name in block.names:
                k = block.slices[name].start
                return block.means[k] + block.scales[k] * values
        return values


def moved(
    function: Callable[[Array], Array],
    z: Float[Array, "m d"],
    columns: Int[Array, " g"],
) -> float:
    """The share of a function's variance that some inputs move.

    Half the mean square by which it changes when they are permuted among the records:
    for independent inputs, the total index of Sobol.
    """
    before = function(z)
    variance = before.var(axis=0).sum()
    if variance < 1e-12:
        return 0.0
    rng = np.random.default_rng(0)
    changes = []
    for _ in range(PERMUTATIONS):
        other = z.copy()
        other[:, columns] = z[rng.permutation(len(z))][:, columns]
        changes.append(((function(other) - before) ** 2).mean(axis=0).sum())
    return float(np.mean(changes) / (2 * variance))


def within_steps(
    own: Int[Array, " n"], shares: Float[Array, "n k"]
) -> Float[Array, " n"]:
    """A category has steps; a random place within its step is uniform, too."""
    above = cumulated(shares)
    below = np.concatenate([np.zeros((len(above), 1)), above[:, :-1]], axis=1)
    low, high = (np.take_along_axis(v, own[:, None], 1)[:, 0] for v in (below, above))
    return low + np.random.default_rng(0).random(len(low)) * (high - low)


def steps(v: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """How far down and up the step of each value goes, half of the way to the next.

    What came once has no step. The first and the last go as far out as in.

    Example:
        >>> [end.tolist() for end in steps(np.array([0.0, 0.0, 1.0, 4.0, 4.0]))]
        [[-0.5, -0.5, 0.0, -1.5, -1.5], [0.5, 0.5, 0.0, 1.5, 1.5]]
    """
    values, place, counts = np.unique(v, return_inverse=True, return_counts=True)
    half = 0.5 * np.diff(values) if len(values) > 1 else np.zeros(1)
    down, up = np.r_[half[0], half], np.r_[half, half[-1]]
    tied = counts > 1
    low, high = (np.where(tied, end[: len(values)], 0.0) for end in (-down, up))
    return low[place.ravel()], high[place.ravel()]


def distance_from_uniform(levels: Float[Array, " n"]) -> float:
    """The largest distance of the share below a level from that level."""
    ordered, n = np.sort(levels), len(levels)
    steps = np.arange(n + 1) / n
    return float(max((ordered - steps[:-1]).max(), (steps[1:] - ordered).max()))


def _oddness(levels: Float[Array, " m"]) -> float:
    """How many deviations of chance the levels are from uniform, up or out."""
    z = _normal(levels)
    shift = abs(float(z.mean())) * np.sqrt(len(z))
    return max(shift, abs(_excess(z)) / np.sqrt(2.0 / len(z)))


def _fault(levels: Float[Array, " m"]) -> str:
    z = _normal(levels)
    excess = _excess(z)
    if abs(float(z.mean())) > abs(excess) / np.sqrt(2.0):
        return "too low" if z.mean() > 0 else "too high"
    return "too narrow" if excess > 0 else "too wide"


def _normal(levels: Float[Array, " m"]) -> Float[Array, " m"]:
    return ndtri(np.clip(levels, 1e-4, 1.0 - 1e-4))


def _excess(z: Float[Array, " m"]) -> float:
    return float((z**2).mean()) - 1.0


def _shape(mechanism: Mechanism, z: Float[Array, "n d"], noise: float) -> str:
    """Name the simplest family that holds nearly all of the fitted mean.

    What it does not hold must be little beside ``noise``, the variance of the rest.
    """
    mean = mechanism(z, np.array([0]))[:, 0]
    if mean.var() < 1e-3 * mechanism.scale**2:
        return "constant"
    quiet = 1.0 - max(LOUD * noise / float(mean.var()), ROUNDING)
    shaped = max(SHAPED, quiet)
    if _held(polynomials(z, 1), mean) >= shaped:
        return "linear"
    if not len(mechanism.centres):
        return "curved"
    squares = polynomials(z, 2)
    few = squares.shape[1] <= len(z) / 4
    return "curved" if few and _held(squares, mean) >= shaped else "bends"


def _determined(z: Float[Array, "m d"], columns: Int[Array, " g"]) -> float:
    rest = np.delete(z, columns, axis=1)
    basis = np.concatenate([np.ones((len(z), 1)), rest], axis=1)
    if not rest.shape[1] or basis.shape[1] > len(z) / 4:
        return 0.0
    return min(_held(basis, z[:, c]) for c in columns)


def _held(basis: Float[Array, "n p"], v: Float[Array, " n"]) -> float:
    """The share of the variance of ``v`` that a linear fit holds."""
    variance = v.var()
    if variance < 1e-12:
        return 0.0
    fitted = basis @ np.linalg.lstsq(basis, v, rcond=None)[0]
    return float(1.0 - ((v - fitted) ** 2).mean() / variance)
