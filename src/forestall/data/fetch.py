"""Downloads: all of a file or nothing, gone on with where they broke off, checked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from forestall.data.manifest import Published
from forestall.errors import DataError

ATTEMPTS = 5
PAUSE = 1.0
TIMEOUT = 60.0
BLOCK = 2**16

PARTIAL, NOT_SATISFIABLE = 206, 416
# Whatever may be over in a moment: a busy server.
PASSING = (408, 425, 429, 500, 502, 503, 504)


def fetch(
    files: Sequence[Published],
    folder: Path,
    done: Callable[[str], object] = len,
    *,
    pause: float = PAUSE,
) -> list[Path]:
    """Get every file that is not there whole, and give the paths of all.

    Args:
        files: What to get.
        folder: Where to put them.
        done: Called with the name of each file that is there; by default nothing
            comes of it.
        pause: Seconds to wait before another attempt; doubled after each.
    """
    paths = []
    with _failing("write to", folder):
        folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        path = folder / file.file
        if not _is_whole(file, path):
            download(file.address, path, file.check, pause)
        paths.append(path)
        done(file.file)
    return paths


def _is_whole(file: Published, path: Path) -> bool:
    try:
        file.check(path)
    except DataError:
        return False
    return True


def download(
    address: str, path: Path, check: Callable[[Path], object], pause: float = PAUSE
) -> None:
    """Download a file; it appears at ``path`` only when it is whole and checked.

    What has come so far is kept beside it when the connection breaks off, in this run
    or in an earlier one, and only the rest is asked for.

    Args:
        address: Where it is.
        path: Where to put it.
        check: Raises :class:`DataError` unless the file at the path it is given is
            the one that was meant.
        pause: Seconds to wait before another attempt; doubled after each.
    """
    part = path.with_name(f".{path.name}.part")
    resumed = part.exists()
    _complete(address, part, pause)
    try:
        check(part)
    except DataError as error:
        part.unlink()
        if resumed:
            # The beginning may be that of an older file: once more, from the start.
            return download(address, path, check, pause)
        raise DataError(
            f"Expected {path.name} at {address}; got another file. {error}"
        ) from error
    with _failing("write", path):
        os.replace(part, path)


def _complete(address: str, part: Path, pause: float) -> None:
    for attempt in range(ATTEMPTS):
        try:
            if _go_on(address, part):
                return
            reason = "the connection broke off"
        except HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code not in PASSING:
                break
        # An OSError of the network, not of the disk: that is raised as our own.
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
        if attempt < ATTEMPTS - 1:
            time.sleep(pause * 2**attempt)
    raise DataError(
        f"Expected to download {address}; got: {reason}. Try again later: what has "
        f"come so far is kept. Or get the file by hand and let FORESTALL_DATA name the "
        f"folder."
    )


def _go_on(address: str, part: Path) -> bool:
    """Ask for what is missing; return whether all has come."""
    have = part.stat().st_size if part.exists() else 0
    # Ranges count bytes as they are on the server's disk, not as they are packed.
    headers = {"Accept-Encoding": "identity", "User-Agent": "forestall"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urlopen(Request(address, headers=headers), timeout=TIMEOUT) as answer:
            return _append(answer, part, have)
    except HTTPError as error:
        if error.code != NOT_SATISFIABLE or not have:
            raise
        # There is nothing after what we have, which is the whole or from elsewhere.
        whole = error.headers.get("Content-Range", "") == f"bytes */{have}"
        if not whole:
            part.unlink()
        return whole


def _append(answer: HTTPResponse, part: Path, have: int) -> bool:
    # A server that knows no ranges sends all of it again.
    goes_on = answer.status == PARTIAL and _starts_at(answer, have)
    length = answer.headers.get("Content-Length")
    came = 0
    with _failing("write", part), part.open("ab" if goes_on else "wb") as file:
        for block in _blocks(answer):
            file.write(block)
            came += len(block)
    return length is None or came == int(length)


def _starts_at(answer: HTTPResponse, have: int) -> bool:
    return answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _blocks(answer: HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            block = answer.read(BLOCK)
        except (OSError, HTTPException):
            # What came before is written; whether that is all, the length tells.
            return
        if not block:
            return
        yield block


class _DiskError(DataError):
    """A file that cannot be written."""


@contextmanager
def _failing(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _DiskError(
            f"Expected to {verb} {path}; got: {error.strerror}. Name another folder "
            f"with FORESTALL_DATA."
        ) from error
