"""The paper in slow, obvious lines: loops and an explicit inverse.

Everything here is standardised and written from the formulas; the fast code must agree
with it. Nothing here is shared with the package but numpy.
"""

import math

import numpy as np


def square_distance(v, w):
    return sum((p - q) ** 2 for p, q in zip(v, w, strict=True))


def rbf(v, w, sigma):
    return math.exp(-square_distance(v, w) / 2 / sigma**2)


def median_width(v):
    distances = [
        math.sqrt(square_distance(v[i], v[j])) for i in range(len(v)) for j in range(i)
    ]
    return float(np.median(distances))


def phi(t):
    return 0.5 * math.erfc(-t / math.sqrt(2))


def desirability(M, b, eta, y):
    """w_eta, eq. (3); rows of M are scaled to unit length first."""
    out = 1.0
    for m, bound in zip(M, b, strict=True):
        length = math.sqrt(sum(c * c for c in m))
        out *= phi(
            eta * (bound - sum(c * v for c, v in zip(m, y, strict=True))) / length
        )
    return out


class Nested:
    """Algorithm 1."""

    def __init__(self, x, u, a, w, sigma_x, sigma_u, sigma_a, sigma_e, lam_h, lam_x):
        n = len(x)
        self.x, self.u, self.a = x, u, a
        self.sigma_x, self.sigma_u = sigma_x, sigma_u
        self.sigma_a, self.sigma_e = sigma_a, sigma_e
        K_h = np.array([[self.k_h(i, j) for j in range(n)] for i in range(n)])
        K_x = np.array([[rbf(x[i], x[j], sigma_e) for j in range(n)] for i in range(n)])
        self.inverse_h = np.linalg.inv(K_h + n * lam_h * np.eye(n))
        self.alpha = w @ self.inverse_h
        self.G = np.linalg.inv(K_x + n * lam_x * np.eye(n))

    def k_h(self, i, j):
        out = rbf(self.x[i], self.x[j], self.sigma_x)
        out *= rbf(self.a[i], self.a[j], self.sigma_a)
        if self.u.shape[1]:
            out *= rbf(self.u[i], self.u[j], self.sigma_u)
        return out

    def reach(self, x):
        """k_x(x) * (K_uu gamma(x)), and gamma' K_uu gamma plus what has no mass."""
        n = len(self.x)
        k_x = np.array([rbf(self.x[i], x, self.sigma_x) for i in range(n)])
        if not self.u.shape[1]:
            return k_x, 1.0
        gamma = self.G @ np.array([rbf(self.x[i], x, self.sigma_e) for i in range(n)])
        K_uu = np.array(
            [
                [rbf(self.u[i], self.u[j], self.sigma_u) for j in range(n)]
                for i in range(n)
            ]
        )
        unknown = 1 - min(max(sum(gamma), 0), 1)
        return k_x * (K_uu @ gamma), float(gamma @ K_uu @ gamma) + unknown**2

    def omega(self, x):
        return self.alpha * self.reach(x)[0]

    def J(self, omega, a):
        return sum(
            o * rbf(self.a[i], a, self.sigma_a) for i, o in enumerate(omega) if o != 0
        )

    def gradient(self, omega, a):
        out = np.zeros(len(a))
        for i, o in enumerate(omega):
            out += o * rbf(self.a[i], a, self.sigma_a) * (self.a[i] - a)
        return out / self.sigma_a**2

    def variance(self, x, a):
        """gamma' K_uu gamma minus the explained part."""
        reach, prior = self.reach(x)
        v = reach * np.array([rbf(c, a, self.sigma_a) for c in self.a])
        return prior - v @ self.inverse_h @ v

    def best(self, x, lower, upper, ascent, starts):
        """Climb from the top positive weights; the best point on the way counts."""
        omega = self.omega(x)
        ranked = sorted(range(len(omega)), key=lambda i: -omega[i])[: ascent.n_starts]
        # The largest weight stands in for those that are not positive.
        chosen = [i if omega[i] > 0 else ranked[0] for i in ranked]
        climbers = [Climber(np.clip(starts[i], lower, upper)) for i in chosen]
        for step in range(ascent.n_steps + 1):
            for climber in climbers:
                climber.look(self.J(omega, climber.a))
                rise = ascent.step_size * self.gradient(omega, climber.a)
                climber.a = np.clip(climber.a + rise, lower, upper)
            if ascent.halve_every and (step + 1) % ascent.halve_every == 0:
                climbers.sort(key=lambda climber: -climber.highest)
                climbers = climbers[: (len(climbers) + 1) // 2]
        return max(climbers, key=lambda climber: climber.highest).best


class Climber:
    def __init__(self, a):
        self.a, self.best, self.highest = a, a, -math.inf

    def look(self, value):
        if value > self.highest:
            self.best, self.highest = self.a, value
