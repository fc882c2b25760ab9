"""Files: written so that a crash leaves the old one whole, read with our own words."""

from __future__ import annotations

import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from forestall.errors import ForestallError


def read_toml(
    path: str | Path, what: str, error_class: type[ForestallError]
) -> dict[str, Any]:
    """Read a TOML file; ``what`` is what a message calls it, e.g. ``"problem"``."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise error_class(
            f"Expected a {what} file in TOML; could not read {str(path)!r}: {error}. "
            f"Check the path, and that the file is text in UTF-8."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise error_class(
            f"Expected TOML in {str(path)!r}; got text that is none: {error}. Correct "
            f"it there."
        ) from error


def write_text(path: str | Path, text: str) -> Path:
    """Replace the file at ``path`` by ``text``, all of it or nothing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
