"""Conditional normalizing flows: the law of some variables given others.

A variable is a linear function of its inputs plus a residual whose law is a neural
spline flow, itself a function of the inputs. The linear part continues a trend where
there are no records; a spline alone does not.

torch and zuko are an extra. Nothing here imports them before they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.errors import FitError, MissingExtraError, SpecError

# Residuals smaller than this, in standard deviations of the variable, are rounding.
TINY = 1e-6


@contextmanager
def own_torch(seed: int) -> Iterator[Any]:
    """Lend out torch with one thread, double precision and a seed; then restore it."""
    torch = _imported("torch")
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_num_threads(1)
            torch.set_default_dtype(torch.float64)
            torch.default_generator.manual_seed(seed)
            yield torch
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


def require_flows() -> None:
    """Raise unless the extra is installed."""
    _imported("torch")
    _imported("zuko")


def _imported(package: str) -> Any:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtraError(package, "flows") from error


@dataclass(frozen=True)
class Epoch:
    """How far training has come, for those who watch.

    Args:
        flow: The variables whose law is learned.
        number: The epoch, counted from 1.
        of: How many there are at most.
        loss: The mean negative log likelihood of the records trained on.
        held_out: The same of the records held out.
        best: The lowest of the latter so far.
    """

    flow: str
    number: int
    of: int
    loss: float
    held_out: float
    best: float


Watcher = Callable[[Epoch], None]


@dataclass(frozen=True, kw_only=True)
class Training:
    """The size of a flow, and how its likelihood is climbed.

    Args:
        n_transforms: Splines, one after the other.
        n_hidden: The width of both hidden layers of the network behind each.
        n_bins: The pieces of each spline.
        step_size: The step of Adam.
        batch_size: Records in each step.
        n_epochs: How often all records are gone through, at most.
        patience: Epochs without a better held-out likelihood before it stops; the
            best flow is kept.
        held_out: The share of records on which that likelihood is measured.
    """

    n_transforms: int = 2
    n_hidden: int = 64
    n_bins: int = 8
    step_size: float = 1e-3
    batch_size: int = 128
    n_epochs: int = 400
    patience: int = 30
    held_out: float = 0.2

    def __post_init__(self) -> None:
        """Check every number."""
        for name, value in vars(self).items():
            real = name in ("step_size", "held_out")
            if not real and not (isinstance(value, int) and value > 0):
                raise SpecError(f"Expected {name} above zero and whole; got {value!r}.")
        if not 0.0 < self.held_out < 1.0:
            raise SpecError(
                f"Expected held_out as a share between 0 and 1; got {self.held_out!r}."
            )
        if not 0.0 < self.step_size < math.inf:
            raise SpecError(
                f"Expected a positive and finite step_size; got {self.step_size!r}."
            )


@dataclass(frozen=True, eq=False)
class ConditionalFlow:
    r"""The fitted law of :math:`v` given :math:`h`.

    .. math:: v = B^\top h + c + s \odot T_h^{-1}(e), \quad e \sim N(0, I)

    Everything fitted is a plain array; the network is made of them when it is needed.

    Args:
        training: The size of the network.
        slopes: The matrix :math:`B`.
        intercepts: The vector :math:`c`.
        scales: The standard deviations :math:`s` of the residuals.
        weights: The parameters of the transformation :math:`T`, by name.
        curve: The loss of each epoch, on the records trained on and held out.
    """

    training: Training
    slopes: Float[Array, "d_h d_v"]
    intercepts: Float[Array, " d_v"]
    scales: Float[Array, " d_v"]
    weights: Mapping[str, Array] = field(repr=False)
    curve: Float[Array, "epochs 2"] = field(repr=False)

    @property
    def dim(self) -> int:
        """The number of variables whose law this is."""
        return len(self.scales)

    @property
    def best_epoch(self) -> int:
        """The epoch that was kept, counted from 1."""
        return int(np.argmin(self.curve[:, 1])) + 1

    def push(self, h: Any, e: Any) -> Any:
        """Turn standard normal numbers into values, differentiably.

        Args:
            h: A tensor of inputs, shape (..., d_h).
            e: A tensor of normal numbers, shape (..., d_v), which broadcasts with it.
        """
        slopes, intercepts, scales = self._linear
        residual = _given(self._network, h).transform.inv(e)
        return h @ slopes + intercepts + scales * residual

    def sample(
        self, h: Float[Array, "n d_h"], e: Float[Array, "n d_v"]
    ) -> Float[Array, "n d_v"]:
        """Turn standard normal numbers into values, one row for each of ``h``."""
        with own_torch(0) as torch, torch.no_grad():
            return self.push(torch.tensor(h), torch.tensor(e)).numpy()

    def log_density(
        self, v: Float[Array, "n d_v"], h: Float[Array, "n d_h"]
    ) -> Float[Array, " n"]:
        """Evaluate the log density of each row of ``v`` given that of ``h``."""
        r = (v - h @ self.slopes - self.intercepts) / self.scales
        with own_torch(0) as torch, torch.no_grad():
            law = _given(self._network, torch.tensor(h))
            return law.log_prob(torch.tensor(r)).numpy() - np.log(self.scales).sum()

    @cached_property
    def _network(self) -> Any:
        with own_torch(0) as torch:
            network = _network(self.training, self.dim, len(self.slopes))
            network.load_state_dict(
                {name: torch.tensor(value) for name, value in self.weights.items()}
            )
            return network.requires_grad_(False).eval()

    @cached_property
    def _linear(self) -> tuple[Any, Any, Any]:
        torch = _imported("torch")
        arrays = (self.slopes, self.intercepts, self.scales)
        slopes, intercepts, scales = (torch.tensor(each) for each in arrays)
        return slopes, intercepts, scales


def learn(
    h: Float[Array, "n d_h"],
    v: Float[Array, "n d_v"],
    training: Training,
    seed: int,
    name: str = "v",
    watch: Watcher | None = None,
) -> ConditionalFlow:
    """Fit the law of ``v`` given ``h`` by maximum likelihood, stopping early.

    Args:
        h: The inputs, standardised; perhaps without columns.
        v: The values, standardised.
        training: How.
        seed: What the split, the batches and the first weights come from.
        name: What to call the variables in messages.
        watch: Is told of every epoch.
    """
    rng = np.random.default_rng([seed, 0])
    train, test = _split(len(v), training.held_out, rng)
    slopes, intercepts = _least_squares(h[train], v[train])
    residuals = v - h @ slopes - intercepts
    scales = np.maximum(residuals[train].std(axis=0), TINY)
    with own_torch(seed) as torch:
        network = _network(training, v.shape[1], h.shape[1])
        tensors = torch.tensor(h), torch.tensor(residuals / scales)
        trainer = _Trainer(torch, network, tensors, training)
        curve = trainer.run(train, test, rng, name, watch)
        weights = {k: t.numpy() for k, t in trainer.kept.items()}
    curve = curve + np.log(scales).sum()
    return ConditionalFlow(training, slopes, intercepts, scales, weights, curve)


class _Trainer:
    """Goes through the records again and again, and keeps the best network."""

    def __init__(
        self, torch: Any, network: Any, tensors: tuple[Any, Any], training: Training
    ) -> None:
        self.torch, self.network, self.training = torch, network, training
        self.h, self.r = tensors
        self.kept: dict[str, Any] = self._weights()
        self.optimizer = torch.optim.Adam(network.parameters(), lr=training.step_size)

    def run(
        self,
        train: Int[Array, " n"],
        test: Int[Array, " m"],
        rng: np.random.Generator,
        name: str,
        watch: Watcher | None,
    ) -> Float[Array, "epochs 2"]:
        curve: list[tuple[float, float]] = []
        best, since = math.inf, 0
        while len(curve) < self.training.n_epochs and since < self.training.patience:
            loss, held_out = self._epoch(rng.permutation(train)), self._tested(test)
            curve.append((loss, held_out))
            if not math.isfinite(loss + held_out):
                raise FitError(_diverged(name, len(curve)))
            since += 1
            if held_out < best:
                best, since, self.kept = held_out, 0, self._weights()
            if watch is not None:
                n_epochs = self.training.n_epochs
                watch(Epoch(name, len(curve), n_epochs, loss, held_out, best))
        return np.array(curve)

    def _epoch(self, rows: Int[Array, " n"]) -> float:
        total, step = 0.0, self.training.batch_size
        for i in range(0, len(rows), step):
            batch = self.torch.from_numpy(rows[i : i + step])
            loss = self._loss(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += float(loss.detach()) * len(batch)
        return total / len(rows)

    def _tested(self, rows: Int[Array, " n"]) -> float:
        with self.torch.no_grad():
            return float(self._loss(self.torch.from_numpy(rows)))

    def _loss(self, rows: Any) -> Any:
        return -_given(self.network, self.h[rows]).log_prob(self.r[rows]).mean()

    def _weights(self) -> dict[str, Any]:
        return {k: t.detach().clone() for k, t in self.network.state_dict().items()}


def _network(training: Training, n_values: int, n_inputs: int) -> Any:
    torch, zuko = _imported("torch"), _imported("zuko")
    return zuko.flows.NSF(
        n_values,
        n_inputs,
        bins=training.n_bins,
        transforms=training.n_transforms,
        hidden_features=(training.n_hidden, training.n_hidden),
        # Smooth, because actions climb along its gradient.
        activation=torch.nn.SiLU,
    )


def _given(network: Any, h: Any) -> Any:
    return network(h) if h.shape[-1] else network()


def _split(
    n: int, share: float, rng: np.random.Generator
) -> tuple[Int[Array, " k"], Int[Array, " m"]]:
    rows = rng.permutation(n)
    cut = min(max(1, round(share * n)), n - 1)
    return rows[cut:], rows[:cut]


def _least_squares(
    h: Float[Array, "n d_h"], v: Float[Array, "n d_v"]
) -> tuple[Float[Array, "d_h d_v"], Float[Array, " d_v"]]:
    """Fit a linear trend; a touch of ridge decides where inputs determine another."""
    centre, level = h.mean(axis=0), v.mean(axis=0)
    z = h - centre
    gram = z.T @ z + 1e-6 * len(h) * np.eye(h.shape[1])
    slopes = np.linalg.solve(gram, z.T @ (v - level))
    return slopes, level - centre @ slopes


def _diverged(name: str, epoch: int) -> str:
    return (
        f"Expected a finite likelihood of {name}; got none in epoch {epoch}. Lower "
        f"step_size, or look for values in the records that are absurdly far out."
    )
