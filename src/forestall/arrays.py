"""The array type of every signature: ``Float[Array, "n d"]`` and the like."""

from numpy import ndarray as Array

__all__ = ["Array"]
