r"""The desired region: linear constraints as text or arrays, and its smooth stand-in.

.. math:: \mathcal{S} = \{ y : m_k^\top y \le b_k,\ k = 1, \dots, l \}
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import log_ndtr

from forestall.arrays import Array
from forestall.constraint import Sentence, listed, say, written_row
from forestall.errors import RegionError, SpecError
from forestall.interior import contradiction, has_interior

__all__ = ["Polytope", "ProbitDesirability"]


@dataclass(frozen=True, eq=False)
class Polytope:
    r"""The outcomes that are wanted, :math:`\{ y : m_k^\top y \le b_k \}`.

    Rows are scaled to unit length, so that a slack is a distance. Membership is judged
    on the rows as they were written: scaling moves no record across the boundary.

    Args:
        normals: The vectors :math:`m_k`, one row each, shape (l, d).
        offsets: The bounds :math:`b_k`, shape (l,).
        strict: Which rows exclude their boundary (``<``), shape (l,); default none.
        texts: The constraint each row comes from; default written from the arrays.
        names: The outcomes; default ``y1`` to ``yd``.

    Example:
        >>> region = Polytope.parse(["0.9 <= a <= 1.5", "a + b < 2"], ["a", "b"])
        >>> print(region)
        0.9 <= a <= 1.5 and a + b < 2
        >>> region.contains(np.array([[1.0, 0.5], [1.0, 1.0]])).tolist()
        [True, False]
    """

    normals: Array
    offsets: Array
    strict: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))
    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    _written: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the arrays, fill in the defaults, scale the rows."""
        M, b = _checked(self.normals, self.offsets)
        strict = np.array(self.strict if len(self.strict) else b * 0, dtype=bool)
        names = self.names or _generated(M.shape[1])
        _check_lengths(M, strict, self.texts, names)
        written = np.array([written_row(k, M[k], b[k]) for k in range(len(b))])
        texts = self.texts or tuple(
            say(*row, names) for row in zip(M, b, strict, strict=True)
        )
        unit = written / np.linalg.norm(written[:, :-1], axis=1, keepdims=True)
        normals, offsets = unit[:, :-1].copy(), unit[:, -1].copy()
        for array in (normals, offsets, strict, written):
            array.flags.writeable = False
        object.__setattr__(self, "normals", normals)
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "strict", strict)
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_written", written)

    @classmethod
    def parse(cls, constraints: Sequence[object], names: Sequence[str]) -> Polytope:
        """Read constraints such as ``"0.5*a + b <= 2"`` or ``"0.9 <= y < 1.5"``.

        Args:
            constraints: The texts; a chain of comparisons gives several rows.
            names: The outcomes. One that is no plain word stands in backticks in the
                text: ``"`debt to income` >= 0.6"``.
        """
        known = tuple(names)
        found = [
            (text, *row)
            for text in _checked_texts(constraints)
            for row in Sentence(text, known).rows()
        ]
        texts, rows, strict = zip(*found, strict=True)
        M, b = np.array(rows)[:, :-1], np.array(rows)[:, -1]
        return cls(M, b, np.array(strict), texts, known)

    @classmethod
    def from_arrays(
        cls,
        normals: Array | Sequence[object],
        offsets: Array | Sequence[object],
        names: Sequence[str] = (),
        strict: Array | Sequence[bool] | None = None,
    ) -> Polytope:
        r"""Take the region as :math:`(M, b)`, from anything that numpy can read."""
        M, b = _checked(normals, offsets)
        strict = np.zeros(len(b), dtype=bool) if strict is None else np.asarray(strict)
        return cls(M, b, strict, names=tuple(names))

    def over(self, outcomes: Sequence[str]) -> Polytope:
        """Give the same region with the columns in the order of ``outcomes``.

        Names that were generated, ``y1`` to ``yd``, stand for outcomes by position.
        Membership stays what it is, and so do texts, unless they say something else
        than the rows.
        """
        names = tuple(outcomes)
        by_position = self.names == _generated(len(names))
        if by_position and set(names) != set(self.names):
            return self._renamed(names)
        if sorted(names) != sorted(self.names):
            raise SpecError(
                f"Expected a region over the outcomes {listed(names)}; got one over "
                f"{listed(self.names)}. Name its columns after the outcomes."
            )
        told = self if self._as_told() else self._renamed(self.names)
        columns = [told.names.index(name) for name in names]
        return told._taken(range(len(told)), columns)

    def only(self, text: str) -> Polytope:
        """Give the region of one constraint, named by its text."""
        rows = [k for k, each in enumerate(self.texts) if each == text]
        return self._taken(rows, range(self.dim))

    def _as_told(self) -> bool:
        """Whether the texts say what the rows say."""
        try:
            read = Polytope.parse(list(dict.fromkeys(self.texts)), self.names)
        except RegionError:
            return False
        one, other = (
            np.column_stack([each.normals, each.offsets, each.strict])
            for each in (self, read)
        )
        same = np.isclose(one[:, None], other[None], rtol=1e-12, atol=0.0).all(axis=-1)
        return bool(same.any(axis=0).all() and same.any(axis=1).all())

    def _renamed(self, names: tuple[str, ...]) -> Polytope:
        M, b = self._written[:, :-1], self._written[:, -1]
        return Polytope(M, b, self.strict, names=names)

    def _taken(self, rows: Sequence[int], columns: Sequence[int]) -> Polytope:
        # Not by the constructor: scaling anew could move a boundary.
        taken, rows, columns = copy.copy(self), list(rows), list(columns)
        for name, value in (
            ("normals", self.normals[np.ix_(rows, columns)]),
            ("offsets", self.offsets[rows]),
            ("strict", self.strict[rows]),
            ("texts", tuple(self.texts[k] for k in rows)),
            ("names", tuple(self.names[j] for j in columns)),
            ("_written", self._written[np.ix_(rows, [*columns, self.dim])]),
        ):
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(taken, name, value)
        return taken

    @property
    def dim(self) -> int:
        """The number of outcomes, d."""
        return self.normals.shape[1]

    def __len__(self) -> int:
        """Count the rows, l."""
        return len(self.offsets)

    def __str__(self) -> str:
        """Join the constraints as they were written."""
        return " and ".join(dict.fromkeys(self.texts))

    def slack(self, y: Float[Array, "*n d"]) -> Float[Array, "*n l"]:
        r"""Measure the signed distances :math:`b_k - m_k^\top y`, negative outside."""
        return self.offsets - y @ self.normals.T

    def contains(self, y: Float[Array, "*n d"]) -> Bool[Array, "*n"]:
        """Judge which outcomes are desired, strictly where the text is strict.

        A constraint on a single outcome is judged without any rounding.
        """
        value, bound = y @ self._written[:, :-1].T, self._written[:, -1]
        return np.where(self.strict, value < bound, value <= bound).all(axis=-1)

    def standardised(
        self, mean: Float[Array, " d"], scale: Float[Array, " d"]
    ) -> Polytope:
        """Express the region in the coordinates ``z = (y - mean) / scale``.

        Rows are again of unit length there; the texts stay in the user's units.
        """
        M, b = self._written[:, :-1], self._written[:, -1]
        return Polytope(M * scale, b - M @ mean, self.strict, self.texts, self.names)

    def require_interior(self) -> None:
        """Raise if no ball fits in, and name the constraints that contradict."""
        if has_interior(self._written):
            return
        rows = contradiction(self._written)
        texts = list(dict.fromkeys(self.texts[k] for k in rows))
        got, remedy = "constraints that exclude each other", "Relax one of them"
        if len(texts) == 1:
            got, remedy = "a constraint that excludes itself", "Relax it"
        raise RegionError(
            f"Expected a desired region with an interior; got {got}: "
            f"{listed(texts)}. {remedy}."
        )


@dataclass(frozen=True, eq=False)
class ProbitDesirability:
    r"""Smooth stand-in for the indicator of a region.

    .. math:: w_\eta(y) = \prod_{k=1}^{l} \Phi(\eta\,(b_k - m_k^\top y))  \quad (3)

    Args:
        region: The desired region :math:`\mathcal{S}`.
        sharpness: The parameter :math:`\eta`. Larger is closer to the indicator
            and harder to learn; the paper uses 5, 10 or 20.

    Example:
        >>> at_least_one = Polytope(np.array([[-1.0]]), np.array([-1.0]))
        >>> w = ProbitDesirability(at_least_one, sharpness=10.0)
        >>> w(np.array([[0.0], [1.0], [2.0]])).round(3).tolist()
        [0.0, 0.5, 1.0]
    """

    region: Polytope
    sharpness: float = 10.0

    def __post_init__(self) -> None:
        """Check the sharpness."""
        if not 0 < self.sharpness < math.inf:
            raise SpecError(
                f"Expected a positive and finite sharpness; got {self.sharpness!r}. "
                f"Use 5, 10 or 20; the limit of ever larger ones is indicator()."
            )

    def __call__(self, y: Float[Array, "*n d"]) -> Float[Array, "*n"]:
        """Evaluate the desirability of each outcome."""
        # A product of many small factors underflows; a sum of logs does not.
        return np.exp(log_ndtr(self.sharpness * self.region.slack(y)).sum(axis=-1))

    def indicator(self, y: Float[Array, "*n d"]) -> Float[Array, "*n"]:
        r"""Evaluate the limit :math:`\eta \to \infty`: one inside, zero outside."""
        return self.region.contains(y).astype(float)


def _generated(d: int) -> tuple[str, ...]:
    return tuple(f"y{j + 1}" for j in range(d))


def _checked(normals: object, offsets: object) -> tuple[Array, Array]:
    try:
        M, b = np.array(normals, dtype=float), np.array(offsets, dtype=float)
    except (TypeError, ValueError) as problem:
        raise RegionError(
            f"Expected normals and offsets as arrays of numbers; got what numpy cannot "
            f"read ({problem}). Give an (l, d) and an (l,) array."
        ) from None
    if M.ndim != 2 or b.shape != M.shape[:1] or M.size == 0:
        raise RegionError(
            f"Expected normals of shape (l, d) and offsets of shape (l,), l and d at "
            f"least 1; got {M.shape} and {b.shape}. Give one row for each constraint."
        )
    finite = np.isfinite(M).all(axis=1) & np.isfinite(b)
    if not finite.all():
        k = int(np.argmin(finite))
        raise RegionError(
            f"Expected finite normals and offsets; got {M[k].tolist()} and {b[k]} in "
            f"row {k}. Leave out a constraint whose bound is infinite."
        )
    return M, b


def _check_lengths(
    M: Array, strict: Array, texts: tuple[str, ...], names: tuple[str, ...]
) -> None:
    rows, d = M.shape
    if strict.shape != (rows,) or len(texts) not in (0, rows):
        raise RegionError(
            f"Expected an entry of strict and texts for each of {rows} rows; got "
            f"{strict.shape} and {len(texts)}. Leave them out for '<=' throughout."
        )
    if len(names) != d or len(set(names)) != d:
        raise RegionError(
            f"Expected {d} different names, one for each column of normals; got "
            f"{len(names)}: {listed(names)}. Name every outcome once."
        )


def _checked_texts(constraints: object) -> list[str]:
    if isinstance(constraints, str) or not isinstance(constraints, Sequence):
        raise RegionError(
            f"Expected a list of constraints; got {constraints!r}. "
            f"Write a single one in brackets: ['y >= 0.6']."
        )
    if not constraints:
        raise RegionError(
            "Expected at least one constraint; got an empty list. "
            "Say which outcomes are desired, e.g. 'y >= 0.6'."
        )
    for entry in constraints:
        if not isinstance(entry, str):
            raise RegionError(
                f"Expected each constraint as text; got {entry!r}, "
                f"a {type(entry).__name__}. Write it like 'y >= 0.6'."
            )
    return list(constraints)
