"""Linear constraints as people write them: read from text, and said again."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import RegionError, nearest

# Numbers stand first, so that the e of 1e3 is no name. A name goes on with any letter
# or mark of any script (the vowel signs of some are no \w for Python), and with dots.
_TOKEN = re.compile(
    r"""(?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | `(?P<quoted>(?:[^`]|``)+)`
      | (?P<name>[^\W\d][^\s\x00-\x2d/:-@\[-^`{-\x7f≤≥≠−×]*)
      | (?P<space>\s+)
      | (?P<sign>[<>=!]+|.)""",
    re.VERBOSE,
)
_SIGNS = {"=": "==", "≤": "<=", "≥": ">=", "≠": "!=", "−": "-", "×": "*"}


@dataclass(frozen=True)
class Sentence:
    """One constraint as the user wrote it, and the names found in it."""

    text: str
    outcomes: tuple[str, ...]
    found: list[str] = field(default_factory=list)

    def rows(self) -> list[tuple[list[float], bool]]:
        """Read each comparison as coefficients, a bound, and whether it is strict."""
        try:
            tree = self._tree()
            sides = [self._linear(side) for side in (tree.left, *tree.comparators)]
            steps = zip(pairwise(sides), tree.ops, strict=True)
            return [self._row(left, op, right) for (left, right), op in steps]
        except (SyntaxError, MemoryError, RecursionError):
            raise self._unreadable() from None
        except OverflowError:
            raise self._infinite() from None

    def _tree(self) -> ast.Compare:
        # Placeholders for names: Python would refuse `yield` and rewrite some unicode.
        code = _TOKEN.sub(self._token, self.text).strip()
        body = ast.parse(code, mode="eval").body
        if isinstance(body, ast.Compare):
            return body
        if "<" in code or ">" in code:
            raise self._unreadable()
        raise self._error(
            "a comparison with <=, >=, < or >",
            ", which has none",
            "Add the bound, e.g. 'y >= 0.6'.",
        )

    def _token(self, match: re.Match[str]) -> str:
        if match["number"] or match["space"]:
            return match["number"] or " "
        if match["sign"]:
            # Python would take these as a comment, a continued line, the end.
            if match[0] in "#\\\0":
                raise self._unreadable()
            return _SIGNS.get(match[0], match[0])
        self.found.append(match["name"] or match["quoted"].replace("``", "`"))
        return f" _{len(self.found) - 1} "

    def _linear(self, node: ast.expr) -> Array:
        """Evaluate to exact rationals: d coefficients and, last, the constant."""
        match node:
            case ast.Constant(value=int() | float() as number):
                return self._constant(number)
            case ast.Name(id=placeholder):
                return self._outcome(self.found[int(placeholder[1:])])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._linear(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._linear(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._linear(left) + self._linear(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self._linear(left) - self._linear(right)
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return self._product(node)
        raise self._nonlinear(node)

    def _constant(self, number: int | float) -> Array:
        if number in (math.inf, -math.inf):
            raise self._infinite()
        # The shortest decimal of a float is the decimal that the user wrote.
        return np.array([Fraction(0)] * len(self.outcomes) + [Fraction(repr(number))])

    def _outcome(self, name: str) -> Array:
        if name in self.outcomes:
            return np.array([Fraction(o == name) for o in self.outcomes] + [Fraction()])
        if name.lower() in ("inf", "infinity", "nan"):
            raise self._infinite()
        raise self._error(
            "a constraint on outcomes",
            f" with the name {name!r}",
            f"The outcomes are {self._known()}.{nearest(name, self.outcomes)}",
        )

    def _product(self, node: ast.BinOp) -> Array:
        left, right = self._linear(node.left), self._linear(node.right)
        times = isinstance(node.op, ast.Mult)
        if times and not left[:-1].any():
            left, right = right, left
        if right[:-1].any():
            raise self._nonlinear(node)
        if not times and right[-1] == 0:
            raise self._infinite(f", where {self._part(node)!r} divides by zero")
        return left * right[-1] if times else left / right[-1]

    def _row(
        self, left: Array, op: ast.cmpop, right: Array
    ) -> tuple[list[float], bool]:
        if not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            equal = isinstance(op, ast.Eq)
            raise self._error(
                "an inequality",
                f", whose region {'has no interior' if equal else 'is not convex'}",
                "Give an interval, e.g. '0.9 <= y <= 1.5', or one side with <= or >=.",
            )
        less = left - right if isinstance(op, ast.Lt | ast.LtE) else right - left
        if not less[:-1].any():
            raise self._error(
                "a constraint on an outcome",
                ", which compares numbers only",
                f"The outcomes are {self._known()}.",
            )
        return _rounded([*less[:-1], -less[-1]]), isinstance(op, ast.Lt | ast.Gt)

    def _known(self) -> str:
        return listed([_quoted(name) for name in self.outcomes])

    def _part(self, node: ast.expr) -> str:
        code = ast.unparse(node)
        return re.sub(r"\b_(\d+)\b", lambda m: _quoted(self.found[int(m[1])]), code)

    def _error(self, expected: str, got: str, remedy: str) -> RegionError:
        for name in self.outcomes:
            ticked = _quoted(name)
            if name != ticked and name in self.text and ticked not in self.text:
                remedy = f"Write the outcome in backticks: {ticked}."
        return RegionError(f"Expected {expected}; got {self.text!r}{got}. {remedy}")

    def _unreadable(self) -> RegionError:
        return self._error(
            "a linear inequality such as '0.5*a + b <= 2' or '0.9 <= y <= 1.5'",
            ", which cannot be read",
            "Write products with *, names with spaces or signs in backticks, and "
            "several constraints as several entries.",
        )

    def _infinite(self, why: str = "") -> RegionError:
        remedy = "Leave out a bound that is infinite."
        return self._error("a constraint with finite numbers", why, remedy)

    def _nonlinear(self, node: ast.expr) -> RegionError:
        return self._error(
            "a constraint linear in the outcomes",
            f", where {self._part(node)!r} is not linear",
            "Use sums, and products and quotients with numbers; a nonlinear quantity "
            "can be an outcome of its own.",
        )


def _rounded(row: Sequence[Fraction]) -> list[float]:
    """Scale coefficients and, last, the bound so that rounding moves no boundary.

    With one outcome that is ``y <= bound``, the bound rounded once. With several it is
    whole numbers, where they fit: exact on discrete records.
    """
    used = [abs(c) for c in row[:-1] if c]
    row = [c / max(used) for c in row]
    if len(used) > 1:
        multiple = math.lcm(*(c.denominator for c in row))
        common = math.gcd(*(int(c * multiple) for c in row))
        whole = [c * multiple / common for c in row]
        row = whole if max(map(abs, whole)) < 2**53 else row
    return [float(c) for c in row]


def written_row(k: int, m: Float[Array, " d"], b: float) -> list[float]:
    """Read a row of arrays as if it had been written as text."""
    if not m.any():
        raise RegionError(
            f"Expected every row of normals to name an outcome; got only zeros in row "
            f"{k} (offset {float(b)!r}). Remove the row."
        )
    try:
        return _rounded([Fraction(repr(float(v))) for v in (*m, b)])
    except OverflowError:
        raise RegionError(
            f"Expected normals and offsets of comparable size; got {m.tolist()} and "
            f"{float(b)!r} in row {k}, a bound beyond all floats. Remove the row."
        ) from None


def say(
    m: Float[Array, " d"], b: float, strict: np.bool_, names: tuple[str, ...]
) -> str:
    """Write a row as text that reads back as the same row."""
    sign = np.sign(m[m != 0][0])
    terms = [_term(sign * m[j], _quoted(names[j])) for j in np.flatnonzero(m)]
    left = " ".join(terms).removeprefix("+ ")
    op = ("<" if sign > 0 else ">") + ("" if strict else "=")
    return f"{left} {op} {_number(sign * b)}"


def _term(c: float, name: str) -> str:
    size = "" if abs(c) == 1 else f"{_number(abs(c))}*"
    return f"{'+' if c > 0 else '-'} {size}{name}"


def _number(value: float) -> str:
    return repr(float(value) + 0.0).removesuffix(".0")


def _quoted(name: str) -> str:
    token = _TOKEN.fullmatch(name)
    plain = token is not None and token["name"]
    return name if plain else "`" + name.replace("`", "``") + "`"


def listed(words: Sequence[str]) -> str:
    """Join words for a message."""
    *head, last = (repr(word) for word in words)
    return f"{', '.join(head)} and {last}" if head else last
