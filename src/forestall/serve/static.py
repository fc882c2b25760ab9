"""The page and what it needs: files of this package, and plotly.js of plotly's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
PLOTLY = "plotly.min.js"


@dataclass(frozen=True)
class Asset:
    """One file as it is sent."""

    body: bytes
    kind: str
    etag: str


def page_folder() -> Path:
    """Where the page lives."""
    return Path(str(files("forestall.serve"))) / "page"


def asset(name: str) -> Asset | None:
    """Read a file of the page by its plain name; ``None`` where there is none."""
    path = _path(name)
    if path is None or path.suffix not in TYPES or not path.is_file():
        return None
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


def _path(name: str) -> Path | None:
    if name == PLOTLY:
        spec = find_spec("plotly")
        if spec is None or spec.origin is None:
            return None
        return Path(spec.origin).parent / "package_data" / PLOTLY
    # A plain name: no folder, nothing hidden, no way up.
    if name != Path(name).name or name.startswith(".") or "\\" in name or "\0" in name:
        return None
    return page_folder() / name


@cache
def _read(path: Path, mtime: int, size: int) -> Asset:
    del mtime, size
    body = path.read_bytes()
    etag = '"' + hashlib.sha256(body).hexdigest()[:24] + '"'
    return Asset(body, TYPES[path.suffix], etag)
