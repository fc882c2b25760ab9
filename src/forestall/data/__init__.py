"""Published data: where they come from, how they are fetched, read and selected.

Nothing of them is shipped. ``forestall data fetch nhanes`` downloads them; or the
environment variable ``FORESTALL_DATA`` names a folder that has them.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["folder"]


def folder() -> Path:
    """Where data are kept: ``FORESTALL_DATA``, or else the user's cache."""
    if named := os.environ.get("FORESTALL_DATA"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "forestall"
