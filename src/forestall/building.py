"""Learning a system of mechanisms from the records, each variable by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.coin import Coin
from forestall.equation import Counts, Equation
from forestall.fork import Fork
from forestall.functions import Functions, Parts, Settled
from forestall.law import Law
from forestall.loudness import Hearing, Loudness
from forestall.mechanism import Mechanism
from forestall.observations import Observations
from forestall.pieces import Key, Layout, Piece
from forestall.problem import Problem
from forestall.processes import shared
from forestall.region import Polytope
from forestall.rehearsal import Node, Outcome, Rehearsal
from forestall.scale.groups import Gathering, joint
from forestall.scale.laws import Blank, Straying, Strays
from forestall.scale.supply import Several, Supply, state_of
from forestall.spanning import CENTRES
from forestall.support import Density, Support


@dataclass(frozen=True, eq=False)
class Learned:
    """A system of mechanisms, and the density of contexts and actions together."""

    system: Rehearsal
    density: Density


class Builder:
    """Learns the equations of a system, each by itself.

    Functions come from a sample of the records; hyperparameters and means, and then
    laws, from all of them, which only have to be counted, twice.
    """

    def __init__(
        self, parts: Parts, problem: Problem, supply: Supply, jobs: int = 1
    ) -> None:
        """Lay out the state: contexts, covariates, actions, outcomes.

        Args:
            parts: What the system is made with.
            problem: The question.
            supply: The records.
            jobs: How many processes share the work.
        """
        self.parts, self.problem, self.supply = parts, problem, supply
        self.jobs = jobs
        self.sample = sample = supply.sample
        self.rng = np.random.default_rng([parts.seed, 0])
        self.state, self.joint = state_of(sample), joint(sample)
        self.layout = Layout(problem, sample.schema)
        self.functions = Functions(parts, self.layout, self.state, supply.n)

    def learned(self) -> Learned:
        """Learn every variable that is not given, in order, and what was usual."""
        pieces, outcomes = self.layout.pieces(), self.layout.outcomes()
        wanted = [*pieces, *(p.apart for p in pieces if p.apart), *outcomes]
        keys = sorted(
            (key for piece in wanted for key in piece.keys), key=len, reverse=True
        )
        equations = self._each(self.functions, [(key,) for key in keys])
        noisy = [piece.keys[0] for piece in wanted if self._is_noisy(piece)]
        hearing = self._hearing({key: equations[key] for key in noisy})
        counts, heard, density = self._counts(equations, hearing)
        # The laws of a sample have to wait for all records to be counted.
        told = set() if self.supply.sampled else set(noisy)
        settled = self._each(
            self.functions.settled,
            [
                (key, equation, counts.moments[key], key in told)
                for key, equation in equations.items()
            ],
        )
        mechanisms = {key: each.mechanism for key, each in settled.items()}
        if self.supply.sampled:
            learned = {key: settled[key] for key in noisy}
            laws = self._laws(learned, self._spreads(hearing, heard))
        else:
            laws = {key: each.law for key, each in settled.items() if each.law}
        system = Rehearsal(
            tuple(self._node(piece, mechanisms, laws) for piece in pieces),
            tuple(self._outcome(piece, mechanisms, laws) for piece in outcomes),
            standardised_region(self.problem, self.sample),
            self.layout.width,
            len(self.problem.actions),
        )
        return Learned(system, density)

    def _each(
        self, learn: Callable[..., Any], asked: Sequence[tuple[Any, ...]]
    ) -> dict[Key, Any]:
        """Learn something of each equation; those of most inputs take longest."""
        names = [first for first, *_ in asked]
        return dict(zip(names, shared(learn, asked, self.jobs), strict=True))

    def _is_noisy(self, piece: Piece) -> bool:
        """Whether a variable has a law besides its mean."""
        return piece.name not in self.layout.levels and self._coin(piece) is None

    def _hearing(self, equations: Mapping[Key, Equation]) -> dict[Key, Strays]:
        """Prepare to count how loud all records are, around the mean of the sample."""
        if not (self.supply.sampled and self.parts.local_laws):
            return {}
        strays = {}
        for key, equation in equations.items():
            still = equation.still()
            seen = still.mechanism(still.count(self.state), self.state)
            hearing = Hearing.of(self.state[:, equation.inputs], seen.residuals)
            strays[key] = Strays(still, seen.still(), hearing)
        return strays

    def _counts(
        self, equations: Mapping[Key, Equation], hearing: Mapping[Key, Strays]
    ) -> tuple[Counts, dict[Key, Any], Density]:
        """Read all records once: for means, how loud they are, and what was usual."""
        wanted: list[Any] = [Counting(equations), Straying(hearing)]
        gathering = self._gathering()
        if gathering is None:
            counts, heard = self.supply.total(Several(tuple(wanted))).parts
            return counts, heard.tallies, Support.of(self.joint)
        several = Several((*wanted, gathering))
        counts, heard, groups = self.supply.total(several).parts
        return counts, heard.tallies, gathering.density(groups, self.joint)

    def _gathering(self) -> Gathering | None:
        """Lay landmarks for the density; ``None`` where it takes all records."""
        low = self.parts.approximation
        if low is None and not self.supply.sampled:
            return None
        rank = CENTRES if low is None else low.n_landmarks
        return Gathering.of(self.joint, self.supply.n, rank, self.parts.seed)

    def _spreads(
        self, hearing: Mapping[Key, Strays], heard: Mapping[Key, Any]
    ) -> dict[Key, Loudness | None]:
        """Learn from what was counted how the spread changes with the inputs."""
        spreads = {}
        for key, each in hearing.items():
            assert isinstance(each.waiting, Hearing)
            z = self.state[:, each.equation.inputs]
            n_draws = self.parts.n_draws
            spreads[key] = each.waiting.loudness(heard[key], z, n_draws, self.rng)
        return spreads

    def _laws(
        self,
        learned: Mapping[Key, Settled],
        spreads: Mapping[Key, Loudness | None],
    ) -> dict[Key, Law | Fork]:
        """Learn the laws of what strays from the means, from all records.

        The two ways of a fork are learned from the sample.
        """
        told = self._each(self.functions.fork, [(key,) for key in learned])
        forks = {key: fork for key, fork in told.items() if fork is not None}
        blanks, strays = {}, {}
        for key, each in learned.items():
            if key in forks:
                continue
            equation, mechanism = each.equation, each.mechanism
            z, local = self.state[:, equation.inputs], self.parts.local_laws
            blank = Blank.of(
                z,
                mechanism.residuals,
                spreads.get(key),
                local=local,
                influence=equation.influence,
            )
            shrunk = float(np.sqrt(1.0 - mechanism.leverage.mean()))
            strays[key] = Strays(equation.still(), mechanism.still(), blank, shrunk)
            blanks[key] = blank
        if not blanks:
            return {**forks}
        tallies = self.supply.total(Straying(strays)).tallies
        laws = {
            key: blank.law(tallies[key], self.parts.n_draws, self.rng)
            for key, blank in blanks.items()
        }
        return {**laws, **forks}

    def _node(
        self,
        piece: Piece,
        mechanisms: Mapping[Key, Mechanism],
        laws: Mapping[Key, Law | Fork],
    ) -> Node:
        own = tuple(mechanisms[key] for key in piece.keys)
        actions = tuple(self.problem.actions)
        level = piece.name in self.layout.levels
        return Node(
            piece.name,
            piece.columns,
            piece.inputs,
            own,
            None if level else self._law(piece, laws),
            actions.index(piece.name) if piece.name in actions else None,
            piece.mates,
            None if piece.apart is None else self._node(piece.apart, mechanisms, laws),
        )

    def _outcome(
        self,
        piece: Piece,
        mechanisms: Mapping[Key, Mechanism],
        laws: Mapping[Key, Law | Fork],
    ) -> Outcome:
        mechanism = mechanisms[piece.keys[0]]
        return Outcome(piece.inputs, mechanism, self._law(piece, laws))

    def _coin(self, piece: Piece) -> Coin | None:
        """The law of a variable with two values; ``None`` where it has more."""
        return self.functions.coins[piece.columns.start]

    def _law(self, piece: Piece, laws: Mapping[Key, Law | Fork]) -> Law | Coin | Fork:
        """How a variable strays."""
        coin = self._coin(piece)
        return laws[piece.keys[0]] if coin is None else coin


@dataclass(frozen=True, eq=False)
class Counting:
    """Counts the records of a batch for every equation."""

    equations: Mapping[Key, Equation]

    def __call__(self, data: Observations) -> Counts:
        """Sum up some records."""
        state = state_of(data)
        return Counts({key: e.count(state) for key, e in self.equations.items()})


def standardised_region(problem: Problem, data: Observations) -> Polytope:
    """The region for standardised outcomes, its bounds moved off recorded values."""
    region, outcomes = problem.region, data.schema.outcomes
    offsets = region.offsets.copy()
    for k, m in enumerate(region.normals):
        (used,) = np.nonzero(m)
        if len(used) == 1:
            y = m[used[0]] * data.y_raw[:, used[0]]
            offsets[k] = _between_ties(y, offsets[k], bool(region.strict[k]))
    moved = Polytope(region.normals, offsets, region.strict, names=region.names)
    return moved.standardised(outcomes.means, outcomes.scales)


def _between_ties(y: Float[Array, " n"], bound: float, strict: bool) -> float:
    """Move a bound on ``y`` to the middle between the values it tells apart.

    Only where values recur: the smooth law of an outcome that is counted or rounded
    has half of a value on the wrong side of a bound that lies on it.
    """
    values, counts = np.unique(y, return_counts=True)
    inside = values < bound if strict else values <= bound
    if not inside.any() or inside.all():
        return bound
    last = int(np.flatnonzero(inside)[-1])
    rare = counts[last : last + 2].max() < max(2, 0.01 * len(y))
    if rare and len(values) > 2:
        return bound
    return float(0.5 * (values[last] + values[last + 1]))
