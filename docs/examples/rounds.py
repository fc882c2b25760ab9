"""Deciding in rounds: learn while acting, but never risk more than agreed.

A dose is set for one patient after another. Few records exist, from cautious doctors
who hardly varied it. Each round the most informative dose is given among those that
succeed with a probability of 70 %, and what came of it is learned from.
"""

import numpy as np

from forestall import Problem
from forestall.baselines import QWZ23

PROBLEM = Problem(
    context=["weight"],
    actions={"dose": (0.0, 4.0)},
    outcomes=["level"],
    desired=["1 <= level <= 3"],
)


def level(weight, dose, rng):
    """The truth, which the method does not see."""
    return 1.2 * dose - 0.04 * (weight - 70.0) + rng.normal(0.0, 0.4, np.shape(dose))


def main():
    """Run the rounds and say how they went."""
    rng = np.random.default_rng(0)
    weight = rng.uniform(55.0, 85.0, 25)
    dose = 1.2 + rng.normal(0.0, 0.1, 25)
    history = {"weight": weight, "dose": dose, "level": level(weight, dose, rng)}
    policy = QWZ23(threshold=0.7).fit(PROBLEM, history)
    successes = []
    for k in range(12):
        patient = {"weight": rng.uniform(58.0, 82.0)}
        given = policy.recommend(patient).actions[0, 0]
        seen = float(level(patient["weight"], given, rng))
        successes.append(1.0 <= seen <= 3.0)
        policy = policy.updated(patient | {"dose": given, "level": seen})
        effect = policy.beliefs.equations[-1]
        unknown = np.sqrt(effect.covariance[-1, -1]) / abs(effect.slopes[-1])
        print(f"round {k + 1}: dose {given:.2f}, relative uncertainty {unknown:.3f}")
    print(f"{np.mean(successes):.0%} of the rounds went well")


if __name__ == "__main__":
    main()
