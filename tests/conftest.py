"""What every test file shares."""

import os

# Threads on a busy machine make timings and, through the order of additions, last
# digits wander, and wait for each other: tests took twenty times as long. What loads
# its BLAS from here on, and the processes that tests start, look at the environment.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

# Plugins of pytest load numpy, and its BLAS, before this file is read.
threadpool_limits(limits=1)

# An example that is slow on a busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
