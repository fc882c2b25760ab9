"""Learning a system of mechanisms from the records, one variable after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.coin import Coin
from forestall.draft import Draft, Moments
from forestall.encoding import Categorical
from forestall.equation import LOGISTIC, Counts, Equation, Toss, Usual, loud, tamed
from forestall.hills import COARSE
from forestall.law import Law
from forestall.likeliest import everything, guessed, recounted, refined
from forestall.likelihood import curved
from forestall.loudness import Hearing, Loudness
from forestall.lowrank import Approximation
from forestall.mechanism import Mechanism
from forestall.observations import Observations
from forestall.problem import Problem
from forestall.region import Polytope
from forestall.rehearsal import Node, Outcome, Rehearsal
from forestall.scale.groups import Gathering, joint
from forestall.scale.laws import Blank, Straying, Strays
from forestall.scale.supply import Several, Supply, state_of
from forestall.select import Alternatives, Choice
from forestall.spanning import CENTRES
from forestall.support import Density, Support

EVERYWHERE = (-np.inf, np.inf)
# How many steps are made to log odds, under a first guess of their functions and again
# under those that were chosen.
LOOKS = 5


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a system is made with.

    Args:
        n_draws: Functions and laws drawn for each variable.
        seed: What they come from.
        recentred: Learn a mean first and the law around it, not the law alone.
        local_laws: Let the law change with the inputs.
        relevance: Give every variable a width of its own.
        approximation: How the Gaussian part of every mean is spanned.
    """

    n_draws: int
    seed: int
    recentred: bool
    local_laws: bool
    relevance: bool
    approximation: Approximation | None = None


Key = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Piece:
    """A variable and what it follows from.

    Args:
        name: The variable.
        columns: Where its encoded values stand in the state.
        inputs: The state columns it follows from.
        mates: Actions of its own tier among them, by their place.
        apart: The same without these.
    """

    name: str
    columns: slice
    inputs: Int[Array, " d"]
    mates: tuple[int, ...] = ()
    apart: Piece | None = None

    @property
    def keys(self) -> list[Key]:
        """Name the equation of each column: itself, then what it follows from."""
        own = range(self.columns.start, self.columns.stop)
        return [(column, *self.inputs.tolist()) for column in own]


@dataclass(frozen=True, eq=False)
class Look:
    """A first look at a mean.

    Args:
        guess: Its hyperparameters.
        draft: Its functions.
        moments: The sums by which it was settled.
        usual: What it tells of the records.
    """

    guess: Choice
    draft: Draft
    moments: Moments
    usual: Usual

    def residuals(
        self, z: Float[Array, "n d"], v: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Tell how far records stray from it."""
        return self.draft.settled(self.moments, z, v).residuals


@dataclass(frozen=True, eq=False)
class Still:
    """A mean that is settled, and a sample of what strays from it.

    Args:
        equation: The equation, without draws.
        moments: The sums by which it was settled.
        z: The inputs of the sample.
        residuals: Its residuals.
    """

    equation: Equation
    moments: Moments
    z: Float[Array, "n d"]
    residuals: Float[Array, " n"]


@dataclass(frozen=True, eq=False)
class Learned:
    """A system of mechanisms, and the density of contexts and actions together."""

    system: Rehearsal
    density: Density


class Builder:
    """Learns the equations of a system one by one.

    Hyperparameters and functions come from a sample of the records; means, and then
    laws, from all of them, which only have to be counted.
    """

    def __init__(self, parts: Parts, problem: Problem, supply: Supply) -> None:
        """Lay out the state: contexts, covariates, actions, outcomes."""
        self.parts, self.problem, self.supply = parts, problem, supply
        self.sample = sample = supply.sample
        self.rng = np.random.default_rng([parts.seed, 0])
        schema = sample.schema
        self.state, self.joint = state_of(sample), joint(sample)
        self.columns: dict[str, slice] = {}
        start = 0
        for block in (schema.context, schema.covariates, schema.actions):
            for name, part in block.slices.items():
                self.columns[name] = slice(start + part.start, start + part.stop)
            start += block.width
        covariates = schema.covariates.columns
        self.levels = {c.name for c in covariates if isinstance(c, Categorical)}
        # Without a mean there is nothing but laws.
        self.coins = [Coin.of(v) if parts.recentred else None for v in self.state.T]
        self.rank = {v: k for k, tier in enumerate(problem.tiers) for v in tier}
        self.parents = known_parents(problem)

    def learned(self) -> Learned:
        """Learn every variable that is not given, in order, and what was usual."""
        pieces, outcomes = self._pieces(), self._outcomes()
        wanted = [*pieces, *(p.apart for p in pieces if p.apart), *outcomes]
        equations = {
            key: self._equation(piece.inputs, key[0])
            for piece in wanted
            for key in piece.keys
        }
        counts, density = self._counts(equations)
        if self.parts.recentred:
            from forestall.posterior import several

            for k, e in equations.items():
                if not len(e.inputs) or e.starts is None:
                    continue
                groups, n = self._groups(e.inputs), self.parts.n_draws
                drawn = several(
                    lambda j: e.draft.chain(
                        counts.moments[k], groups, e.starts.choices[j], self.rng,
                        known=isinstance(e.spread, Toss),
                    ),
                    e.starts.members(n, self.rng), n, self.rng,
                )
                draft, counts.moments[k] = e.draft.chained(counts.moments[k], groups, drawn)
                equations[k] = replace(e, draft=draft)
        mechanisms = {
            key: equation.mechanism(counts.moments[key], self.state)
            for key, equation in equations.items()
        }
        laws: dict[Key, Law] = {}
        if self.supply.sampled:
            still = {
                piece.keys[0]: self._still(piece, equations, counts, mechanisms)
                for piece in wanted
                if piece.name not in self.levels and self._coin(piece) is None
            }
            laws = self._counted_laws(still)
        system = Rehearsal(
            tuple(self._node(piece, mechanisms, laws) for piece in pieces),
            tuple(self._outcome(piece, mechanisms, laws) for piece in outcomes),
            standardised_region(self.problem, self.sample),
            self.state.shape[1],
            len(self.problem.actions),
        )
        return Learned(system, density)

    def _counts(self, equations: Mapping[Key, Equation]) -> tuple[Counts, Density]:
        """Read all records once, for the means and for what was usual."""
        count, gathering = Counting(equations), self._gathering()
        if gathering is None:
            return self.supply.total(count), Support.of(self.joint)
        counts, groups = self.supply.total(Several((count, gathering))).parts
        return counts, gathering.density(groups, self.joint)

    def _chosen_by_all(
        self, equation: Equation, moments: Moments
    ) -> tuple[Equation, Moments]:
        """Choose again what a sample has chosen, by the sums over all records."""
        draft = equation.draft
        if not len(equation.inputs):
            return equation, moments
        tossed = isinstance(equation.spread, Toss)
        groups = self._groups(equation.inputs)
        if equation.starts is None:
            return equation, moments
        draft, moments = draft.chained(moments, groups, equation.starts, self.rng, known=tossed)
        return replace(equation, draft=draft), moments

    def _gathering(self) -> Gathering | None:
        """Lay landmarks for the density; ``None`` where it takes all records."""
        low = self.parts.approximation
        if low is None and not self.supply.sampled:
            return None
        rank = CENTRES if low is None else low.n_landmarks
        return Gathering.of(self.joint, self.supply.n, rank, self.parts.seed)

    def _pieces(self) -> list[Piece]:
        """List covariates and actions, in order."""
        last = max(self.rank[v] for v in self.problem.outcomes)
        moved = [v for v in self.columns if v not in self.problem.context]
        moved = [v for v in moved if self.rank[v] < last or v in self.problem.actions]
        moved.sort(key=self._turn)
        return [self._piece(v, moved[:k]) for k, v in enumerate(moved)]

    def _turn(self, name: str) -> tuple[int, int]:
        """Within a tier, covariates come before the actions that go along with them.

        Only an action that covariates of its clique follow from comes first.
        """
        if name not in self.problem.actions:
            return self.rank[name], 1
        return self.rank[name], 0 if len(self._clique(name)) > 1 else 2

    def _clique(self, name: str) -> set[str]:
        """The variables that mutually influence this one, and itself."""
        graph = self.problem.one_graph()
        if graph is None or graph.bidirected != "mutual":
            return {name}
        return set(graph.clique_of(name))

    def _piece(self, name: str, before: list[str]) -> Piece:
        actions, own = tuple(self.problem.actions), self.columns[name]
        mates = [v for v in before if self.rank[v] == self.rank[name] and v in actions]
        mates = [v for v in mates if v not in self._clique(name)]
        if name not in actions:
            # No covariate may follow from an action of its own tier.
            before = [v for v in before if v not in mates]
            mates = []
        inputs = self._inputs(name, before)
        if not mates or self.parents is not None:
            return Piece(name, own, inputs)
        rest = self._inputs(name, [v for v in before if v not in mates])
        places = tuple(actions.index(v) for v in mates)
        return Piece(name, own, inputs, places, Piece(name, own, rest))

    def _inputs(self, name: str, before: list[str]) -> Int[Array, " d"]:
        """State columns of the contexts, which are known, and of what precedes."""
        known = [*self.problem.context, *before]
        if self.parents is not None:
            known = [v for v in known if v in self.parents[name]]
        columns = [
            np.arange(self.columns[v].start, self.columns[v].stop) for v in known
        ]
        return np.concatenate([np.empty(0, dtype=int), *columns])

    def _outcomes(self) -> list[Piece]:
        """List the outcomes, each given those before it."""
        first = self.state.shape[1] - len(self.problem.outcomes)
        moved = [v for v in self.columns if v not in self.problem.context]
        pieces = []
        for k, name in enumerate(self.problem.outcomes):
            earlier = [v for v in moved if self.rank[v] < self.rank[name]]
            inputs = self._inputs(name, earlier)
            before = np.concatenate([inputs, np.arange(first, first + k)])
            pieces.append(Piece(name, slice(first + k, first + k + 1), before))
        return pieces

    def _equation(self, inputs: Int[Array, " d"], column: int) -> Equation:
        """Choose the functions of a mean."""
        z, v = self.state[:, inputs], self.state[:, column]
        if self._is_level(column):
            ends, guess = EVERYWHERE, self._guess(inputs, v)
            self.starts = self._refined(guess, inputs, v)
            open_to = self._laid(self.starts, z)
            return Equation(inputs, column, ends, self._draft(z, v, open_to), starts=self.starts)
        if np.ptp(v) == 0.0:
            flat = Choice(np.zeros(len(inputs)), 0.0, 0.0, 1.0, np.ones(len(inputs)))
            draft = self._draft(z, v, Alternatives((flat,))).certain()
            return Equation(inputs, column, EVERYWHERE, draft)
        ends = low, high = tamed(v)
        coin = self.coins[column]
        if coin is not None:
            return self._tossed(inputs, column, coin)
        if not self.parts.recentred:
            v = np.clip(v, *ends)
            draft = self._draft(z, v, Alternatives((self._guess(inputs, v),)))
            return Equation(inputs, column, ends, draft)
        look = self._look(inputs, v, (low <= v) & (v <= high))
        if not look.usual.tells(z, v, ends):
            v = np.clip(v, *ends)
            look = self._look(inputs, v, np.ones(len(v), dtype=bool))
        # What strays is pulled in; where records are louder than elsewhere, they count
        # less, from here on.
        v = look.usual.believable(z, v, ends)
        residuals, local = look.residuals(z, v), self.parts.local_laws
        spread, quiet = loud(z, residuals) if local else (None, 1.0)
        usual = look.usual.where_loud(z, residuals, spread)
        calm = usual.calmed(z, v)
        loudness = None if spread is None else spread(z, 0) ** 2
        open_to = self._refined(look.guess, inputs, calm, loudness)
        draft = self._draft(z, calm, self._laid(open_to, z))
        return Equation(inputs, column, ends, draft, usual, spread, quiet, starts=open_to)

    def _tossed(self, inputs: Int[Array, " d"], column: int, coin: Coin) -> Equation:
        """Choose the functions of the log odds of the higher of two values."""
        z, v = self.state[:, inputs], self.state[:, column]
        groups = self._groups(inputs)
        toss = Toss.of(coin, v)
        y, noise = toss.records(z, v)
        guess = guessed(z, y, groups, noise)
        toss = self._looked(toss, inputs, v, guess)
        y, noise = toss.records(z, v)
        open_to = refined(guess, z, y, groups, noise, known=True).of_noise(1.0)
        toss = self._looked(toss, inputs, v, open_to.choices[0])
        draft = self._draft(z, toss.odds(z, v), self._laid(open_to, z))
        draft = draft.of_known_noise(toss.middle, LOGISTIC)
        return Equation(inputs, column, EVERYWHERE, draft, spread=toss, starts=open_to)

    def _looked(
        self,
        toss: Toss,
        inputs: Int[Array, " d"],
        v: Float[Array, " n"],
        choice: Choice,
    ) -> Toss:
        """Go to the likeliest log odds, step by step."""
        z = self.state[:, inputs]
        for _ in range(LOOKS):
            odds, noise = toss.odds(z, v), toss(z, 0) ** 2
            draft = self._draft(z, odds, Alternatives((choice,)), n_draws=0)
            draft = draft.of_known_noise(toss.middle, LOGISTIC)
            toss = toss.closer(
                draft.settled(draft.count(z, odds, noise), z, odds, noise)
            )
        return toss

    def _laid(self, open_to: Alternatives, z: Float[Array, "n d"]) -> Alternatives:
        """Leave nothing out where all records will choose again."""
        if not (self.parts.recentred and z.shape[1]):
            return open_to
        all_ = everything(open_to.whole, curved(z))
        if not self.supply.sampled:
            all_ = replace(all_, shape=COARSE, smooth=open_to.whole.smooth)
        return Alternatives((all_,))

    def _look(
        self, inputs: Int[Array, " d"], v: Float[Array, " n"], sane: Bool[Array, " n"]
    ) -> Look:
        """Take a first look at a mean, by some of the records."""
        z = self.state[:, inputs]
        guess = self._guess(inputs, v, sane)
        draft = self._draft(z[sane], v[sane], Alternatives((guess,)), n_draws=0)
        moments = draft.count(z[sane], v[sane])
        seen = draft.settled(moments, z[sane], v[sane])
        return Look(guess, draft, moments, Usual.of(seen, z))

    def _guess(
        self,
        inputs: Int[Array, " d"],
        v: Float[Array, " n"],
        sane: Bool[Array, " n"] | slice = slice(None),
    ) -> Choice:
        z, v = self.state[:, inputs][sane], v[sane]
        if not self.parts.recentred:
            flat = np.full(z.shape[1], 1e-12)
            return Choice(flat, 0.0, 0.0, 1.0, np.ones(z.shape[1]))
        return guessed(z, _scaled(v), self._groups(inputs))

    def _refined(
        self,
        guess: Choice,
        inputs: Int[Array, " d"],
        v: Float[Array, " n"],
        loudness: Float[Array, " n"] | None = None,
    ) -> Alternatives:
        if not self.parts.recentred:
            return Alternatives((guess,))
        groups = self._groups(inputs)
        return refined(guess, self.state[:, inputs], _scaled(v), groups, loudness)

    def _draft(
        self,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        open_to: Alternatives,
        n_draws: int | None = None,
    ) -> Draft:
        n_draws = self.parts.n_draws if n_draws is None else n_draws
        low, n = self.parts.approximation, self.supply.n
        return Draft.of(z, v, open_to, n_draws, self.rng, low, n)

    def _is_level(self, column: int) -> bool:
        return any(
            self.columns[v].start <= column < self.columns[v].stop for v in self.levels
        )

    def _node(
        self,
        piece: Piece,
        mechanisms: Mapping[Key, Mechanism],
        laws: Mapping[Key, Law],
    ) -> Node:
        own = tuple(mechanisms[key] for key in piece.keys)
        actions = tuple(self.problem.actions)
        return Node(
            piece.name,
            piece.columns,
            piece.inputs,
            own,
            None if piece.name in self.levels else self._law(piece, own[0], laws),
            actions.index(piece.name) if piece.name in actions else None,
            piece.mates,
            None if piece.apart is None else self._node(piece.apart, mechanisms, laws),
        )

    def _outcome(
        self,
        piece: Piece,
        mechanisms: Mapping[Key, Mechanism],
        laws: Mapping[Key, Law],
    ) -> Outcome:
        mechanism = mechanisms[piece.keys[0]]
        return Outcome(piece.inputs, mechanism, self._law(piece, mechanism, laws))

    def _coin(self, piece: Piece) -> Coin | None:
        """The law of a variable with two values; ``None`` where it has more."""
        return self.coins[piece.columns.start]

    def _law(
        self, piece: Piece, mechanism: Mechanism, laws: Mapping[Key, Law]
    ) -> Law | Coin:
        """Learn the law of the residuals, unless all records were counted for it."""
        coin = self._coin(piece)
        if coin is not None:
            return coin
        if piece.keys[0] in laws:
            return laws[piece.keys[0]]
        z, n_draws = self.state[:, piece.inputs], self.parts.n_draws
        local = self.parts.local_laws
        return Law.of(z, mechanism.residuals, n_draws, self.rng, local=local)

    def _still(
        self,
        piece: Piece,
        equations: Mapping[Key, Equation],
        counts: Counts,
        mechanisms: Mapping[Key, Mechanism],
    ) -> Still:
        """Prepare to count the residuals of all records."""
        (key,) = piece.keys
        still = replace(equations[key], draft=equations[key].draft.still())
        z = self.state[:, piece.inputs]
        return Still(still, counts.moments[key], z, mechanisms[key].residuals)

    def _counted_laws(self, still: Mapping[Key, Still]) -> dict[Key, Law]:
        """Learn the laws from all records: how loud they are, then their shape."""
        if not still:
            return {}
        n_draws, local = self.parts.n_draws, self.parts.local_laws
        spreads: dict[Key, Loudness | None] = dict.fromkeys(still)
        if local:
            hearing = {
                key: Hearing.of(each.z, each.residuals) for key, each in still.items()
            }
            heard = self._strayed(still, hearing)
            spreads = {
                key: hearing[key].loudness(heard[key], each.z, n_draws, self.rng)
                for key, each in still.items()
            }
        blanks = {
            key: Blank.of(each.z, each.residuals, spreads[key], local=local)
            for key, each in still.items()
        }
        tallies = self._strayed(still, blanks)
        return {
            key: blank.law(tallies[key], n_draws, self.rng)
            for key, blank in blanks.items()
        }

    def _strayed(
        self, still: Mapping[Key, Still], waiting: Mapping[Key, Blank | Hearing]
    ) -> dict[Key, Any]:
        """Count how all records stray, by one more pass."""
        strays = {
            key: Strays(each.equation, each.moments, waiting[key])
            for key, each in still.items()
        }
        return self.supply.total(Straying(strays)).tallies

    def _groups(self, inputs: Int[Array, " d"]) -> Int[Array, " d"]:
        """Tell which columns are of one variable, and so have one width."""
        if not self.parts.relevance:
            return np.zeros_like(inputs)
        owner = np.empty(self.state.shape[1], dtype=int)
        for k, part in enumerate(self.columns.values()):
            owner[part] = k
        first = self.state.shape[1] - len(self.problem.outcomes)
        owner[first:] = len(self.columns) + np.arange(len(self.problem.outcomes))
        return np.unique(owner[inputs], return_inverse=True)[1]


@dataclass(frozen=True, eq=False)
class Counting:
    """Counts the records of a batch for every equation."""

    equations: Mapping[Key, Equation]

    def __call__(self, data: Observations) -> Counts:
        """Sum up some records."""
        state = state_of(data)
        return Counts({key: e.count(state) for key, e in self.equations.items()})


def _scaled(v: Float[Array, " n"]) -> Float[Array, " n"]:
    return (v - v.mean()) / (v.std() or 1.0)


def known_parents(problem: Problem) -> dict[str, set[str]] | None:
    """The parents of each variable, where they are all that has to be known of it.

    That takes a graph without hidden causes, in which contexts follow from contexts
    only; else a context tells more than the parents do.
    """
    graph = problem.one_graph()
    if graph is None or graph.bidirected_edges:
        return None
    known, contexts = set(problem.variables), set(problem.context)
    if set(graph.nodes) - known or set(graph.parents(contexts)) - contexts:
        return None
    return {v: set(graph.parents([v])) for v in known}


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
    rare = counts[last : last + 2].min() < max(2, 0.01 * len(y))
    if rare and len(values) > 2:
        return bound
    return float(0.5 * (values[last] + values[last + 1]))
