"""Boosted trees, fitted by scikit-learn and evaluated on millions of draws.

A search for the best action asks for a mechanism tens of millions of times, and then
the usual walk from node to node of every tree takes minutes. Here a tree has at most
eight leaves, so that a byte can hold those that are still possible; what a feature
rules out in all trees at once is a row of bytes looked up by where its value lies among
the cuts, and the leaf that is left when all features have spoken is the tree's answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, softmax

from forestall.arrays import Array

MOST_LEAVES = 8
ALL_LEAVES = 0xFF
BYTES = 256
# Rows at once: beyond it the bytes of all trees leave the cache.
CHUNK = 2**14


@dataclass(frozen=True, eq=False)
class Forest:
    """A sum of trees of at most eight leaves.

    Args:
        cuts: For each feature the values it is compared with, rising.
        masks: For each feature and each interval between its cuts, the leaves that are
            still possible, one byte for each tree, eight trees in a word.
        values: What each byte stands for in each tree: the value of the leaf left.
        base: What the trees are added to.
    """

    cuts: tuple[Array, ...]
    masks: tuple[Array, ...]
    values: Array
    base: float

    def __call__(self, features: Sequence[Array]) -> Array:
        """Evaluate the sum, broadcasting over the features.

        What is of one value for many draws is looked up once for all of them.
        """
        shape = np.broadcast_shapes(*(f.shape for f in features))
        if not (size := int(np.prod(shape))):
            return np.zeros(shape)
        if size <= CHUNK:
            return self._at(features)
        axis = next(k for k, length in enumerate(shape) if length > 1)
        step = max(1, shape[axis] * CHUNK // size)
        pieces = (
            self([_part(f, axis, start, step, len(shape)) for f in features])
            for start in range(0, shape[axis], step)
        )
        return np.concatenate(list(pieces), axis=axis)

    def _at(self, features: Sequence[Array]) -> Array:
        used = [j for j, cuts in enumerate(self.cuts) if len(cuts)]
        left = np.full(self.masks[0].shape[1:], -1, dtype=np.int64).view(np.uint64)
        # Small shapes first: most features are the same for many draws.
        for j in sorted(used, key=lambda j: features[j].size):
            place = np.searchsorted(self.cuts[j], features[j])
            left = left & np.take(self.masks[j], place, axis=0)
        shape = np.broadcast_shapes(*(f.shape for f in features))
        return np.broadcast_to(self._sum(left), shape)

    def _sum(self, left: Array) -> Array:
        """Add up the leaves that are left."""
        rows = np.ascontiguousarray(left).view(np.uint8).reshape(-1, len(self.values))
        total = np.full(len(rows), self.base)
        # Tree by tree is five times faster than one lookup in a table of all trees.
        for values, leaf in zip(self.values, np.ascontiguousarray(rows.T), strict=True):
            total += np.take(values, leaf, mode="clip")
        return total.reshape(left.shape[:-1])


def _part(f: Array, axis: int, start: int, step: int, ndim: int) -> Array:
    """Take a stretch along an axis of the broadcast shape, where ``f`` has it."""
    own = axis - (ndim - f.ndim)
    if own < 0 or f.shape[own] == 1:
        return f
    return f[(slice(None),) * own + (slice(start, start + step),)]


def compile_forest(trees: Sequence[Array], n_features: int, base: float) -> Forest:
    """Turn the nodes of scikit-learn's trees into masks.

    Args:
        trees: The nodes of each tree.
        n_features: How many features the trees were fitted to.
        base: What the trees are added to.
    """
    n = -8 * (-max(1, len(trees)) // 8)
    cuts = [_cuts(trees, j) for j in range(n_features)]
    masks = [np.full((len(c) + 1, n), ALL_LEAVES, dtype=np.uint8) for c in cuts]
    values = np.zeros((n, BYTES))
    for t, nodes in enumerate(trees):
        n_leaves = _rule_out(nodes, t, 0, 0, cuts, masks, values)
        # Bits that stand for no leaf are never ruled out.
        spare = ALL_LEAVES ^ _bits(0, n_leaves)
        leaves = 1 << np.arange(n_leaves)
        values[t, leaves | spare] = values[t, leaves]
    words = tuple(m.view(np.uint64) for m in masks)
    return Forest(tuple(cuts), words, values, base)


def _cuts(trees: Sequence[Array], feature: int) -> Float[Array, " k"]:
    splits = [nodes[nodes["is_leaf"] == 0] for nodes in trees]
    found = [each["num_threshold"][each["feature_idx"] == feature] for each in splits]
    return np.unique(np.concatenate([*found, np.empty(0)]))


def _rule_out(
    nodes: Array,
    tree: int,
    at: int,
    first: int,
    cuts: list[Array],
    masks: list[Array],
    values: Array,
) -> int:
    """Enter a subtree, whose leaves begin at bit ``first``; return where they end."""
    node = nodes[at]
    if node["is_leaf"]:
        assert first < MOST_LEAVES, "the trees are grown with eight leaves at most"
        values[tree, 1 << first] = node["value"]
        return first + 1
    rest = cuts, masks, values
    middle = _rule_out(nodes, tree, int(node["left"]), first, *rest)
    last = _rule_out(nodes, tree, int(node["right"]), middle, *rest)
    j = int(node["feature_idx"])
    split = int(np.searchsorted(cuts[j], node["num_threshold"]))
    masks[j][: split + 1, tree] &= ALL_LEAVES ^ _bits(middle, last)
    masks[j][split + 1 :, tree] &= ALL_LEAVES ^ _bits(first, middle)
    return last


def _bits(first: int, last: int) -> int:
    return (1 << last) - (1 << first)


def mean_forest(fitted: Any) -> Forest:
    """Compile a fitted ``HistGradientBoostingRegressor``."""
    return _forests(fitted)[0]


@dataclass(frozen=True, eq=False)
class ClassForests:
    """Boosted trees for the chances of levels.

    Args:
        forests: One for each level, or a single one for the second of two.
    """

    forests: tuple[Forest, ...]

    def __call__(self, features: Sequence[Array]) -> Array:
        """Evaluate the chance of each level, along a new last axis."""
        scores = np.stack([forest(features) for forest in self.forests], axis=-1)
        if len(self.forests) > 1:
            return softmax(scores, axis=-1)
        second = expit(scores)
        return np.concatenate([1.0 - second, second], axis=-1)


def class_forests(fitted: Any) -> ClassForests:
    """Compile a fitted ``HistGradientBoostingClassifier``."""
    return ClassForests(_forests(fitted))


def _forests(fitted: Any) -> tuple[Forest, ...]:
    # Not public, but the only way to a fitted tree; a test compares with predict().
    rounds, bases = fitted._predictors, np.ravel(fitted._baseline_prediction)
    return tuple(
        compile_forest(
            [trees[k].nodes for trees in rounds], fitted.n_features_in_, float(base)
        )
        for k, base in enumerate(bases)
    )
