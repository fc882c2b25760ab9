"""Files: written so that a crash leaves the old one whole, read with our own words."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from forestall.errors import ForestallError


def read_toml(
    path: str | Path, what: str, error_class: type[ForestallError]
) -> dict[str, Any]:
    """Read a TOML file; ``what`` is what a message calls it, e.g. ``"problem"``."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise error_class(
            f"Expected a {what} file in TOML; could not read {str(path)!r}: {why}. "
            f"Check the path, and that the file is text in UTF-8."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise error_class(
            f"Expected TOML in {str(path)!r}; got text that is none: {error}. Correct "
            f"it there."
        ) from error


def write_text(path: str | Path, text: str) -> Path:
    """Replace the file at ``path`` by ``text``, all of it or nothing."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
    return Path(path)


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Write another file that takes the place of that at ``path`` when it is whole.

    A file that only its owner may read stays so.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777 if path.is_file() else 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
