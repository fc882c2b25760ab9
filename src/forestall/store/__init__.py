"""Saved policies: every method's policy to one file and back, without pickle.

A file is a zip of ``policy.json`` and one ``.npy`` member for each array, as
``docs/saved-policies.md`` describes. Reading one executes nothing that it says.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from forestall.errors import StoreError
from forestall.files import replacing
from forestall.method import Policy
from forestall.store.archive import LONGEST, Archive, DamageError, Entry, write
from forestall.store.building import Building
from forestall.store.taking import Parts, unknown

__all__ = ["FORMAT", "about", "load", "save"]

FORMAT = 5
"""The newest format that this version reads, and the one that it writes."""

PACKAGES = ("forestall", "numpy", "scipy")


def save(policy: Any, path: Any) -> Path:
    """Write a policy to one file; a crash leaves the old file whole.

    Args:
        policy: Any policy that forestall has fitted. One of an exact method holds the
            records it was fitted to, so its file holds personal data where they are.
        path: The file, ``lending.forestall`` say.
    """
    if not isinstance(policy, Policy):
        raise unknown(policy, "")
    parts = Parts(policy.problem)
    top = parts.told(policy, "")
    told = _document(policy, top["object"], parts)
    document = json.dumps(told, allow_nan=False, separators=(",", ":"))
    if len(document) > LONGEST:
        raise StoreError(
            f"Expected a policy whose names and numbers take at most {LONGEST:,} bytes "
            f"beside its arrays; got {len(document):,}. Group the levels of categories."
        )
    path = _path(path)
    try:
        with replacing(path) as file:
            write(file, document.encode("ascii"), parts.arrays)
    except OSError as error:
        raise StoreError(
            f"Expected a place to save a policy to; could not write {str(path)!r}: "
            f"{error.strerror or error}. Check the path, and that there is room."
        ) from error
    return path


def load(path: Any, *, mmap: bool = False) -> Policy:
    """Read a policy that was saved; it answers exactly as the saved one did.

    Args:
        path: The file.
        mmap: Use the arrays in place instead of reading them: processes that load one
            file then share its memory. The file must not be written to in place;
            saving over it is fine.
    """
    with _reading(path):
        archive = Archive.read(_path(path), mapped=mmap)
        told = _read_document(archive)
        entries = [Entry.read(each) for each in told["arrays"]]
        _check_members(archive, entries)
        arrays = [archive.array(entry) for entry in entries]
        building = Building(told["problem"], arrays)
        objects = [building.add(each) for each in told["objects"]]
        if not objects or not isinstance(objects[-1], Policy):
            raise DamageError("no policy in it")
        return objects[-1]


def about(path: Any) -> dict[str, Any]:
    """Tell of a saved policy what can be told without reading its arrays.

    Args:
        path: The file.

    Returns:
        ``format``, ``method``, ``problem`` (plain fields, as in its TOML file),
        ``history`` (``sha256``, its fingerprint, and ``records``, their number),
        ``versions`` of the libraries that wrote it, and when it was ``created``.
    """
    with _reading(path):
        told = _read_document(Archive.read(_path(path), mapped=True))
        return {key: told[key] for key in KINDS if key not in ("arrays", "objects")}


def _document(policy: Policy, top: int, parts: Parts) -> dict[str, Any]:
    fingerprint = policy.schema.fingerprint
    assert top == len(parts.objects) - 1
    entries = [
        {"name": e.name, "dtype": e.dtype, "shape": e.shape, "order": e.order}
        for e in parts.arrays
    ]
    return {
        "format": FORMAT,
        "method": _method(policy),
        "problem": policy.problem.to_dict(),
        "history": {"sha256": fingerprint.sha256, "records": fingerprint.records},
        "versions": _versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "objects": parts.objects,
        "arrays": entries,
    }


# What a document consists of.
KINDS = {
    "format": int,
    "method": str,
    "problem": dict,
    "history": dict,
    "versions": dict,
    "created": str,
    "objects": list,
    "arrays": list,
}


def _method(policy: Policy) -> str:
    method = getattr(policy, "method", None)
    if method is None:
        return type(policy).__name__.removesuffix("Policy")
    return type(method).__name__


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {k: _version(k) for k in PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _read_document(archive: Archive) -> dict[str, Any]:
    info = archive.members.get("policy.json")
    if info is None or info.file_size > LONGEST:
        raise DamageError("a zip without policy.json, or with one that is too long")
    try:
        told = json.loads(archive.document(), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise DamageError("a policy.json that is no JSON") from error
    if not isinstance(told, dict) or type(told.get("format")) is not int:
        raise DamageError("a policy.json that names no format")
    _check_format(told)
    for key, kind in KINDS.items():
        if not isinstance(told.get(key), kind):
            raise DamageError(f"a policy.json without {key}")
    return told


def _path(path: Any) -> Path:
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise StoreError(
            f"Expected the path of a file; got {path!r}. Write it as text, e.g. "
            f"'lending.forestall'."
        )
    return Path(path)


def _refused(constant: str) -> None:
    raise ValueError(constant)


def _check_format(told: dict[str, Any]) -> None:
    number, versions = told["format"], told.get("versions")
    if number < 1:
        raise DamageError(f"format {number}, which there never was")
    if number <= FORMAT:
        return
    writer = versions.get("forestall") if isinstance(versions, dict) else None
    by = f" (written by forestall {writer[:40]})" if isinstance(writer, str) else ""
    raise StoreError(
        f"Expected a saved policy of format {FORMAT} or older; got format "
        f"{number}{by}, which forestall {_version('forestall')} does not know. Update "
        f"with: pip install --upgrade forestall"
    )


def _check_members(archive: Archive, entries: list[Entry]) -> None:
    names = {"policy.json", *(entry.name for entry in entries)}
    if len(names) != len(entries) + 1 or names != set(archive.members):
        raise DamageError("other members than its policy.json lists")


@contextmanager
def _reading(path: Any) -> Iterator[None]:
    """Say in our own words which file is wrong, and how."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"Expected a saved policy; could not read {str(path)!r}: "
            f"{error.strerror or error}. Check the path, and who may read it."
        ) from error
    except MemoryError as error:
        raise StoreError(
            f"Expected a saved policy that fits into memory; {str(path)!r} does not. "
            f"Load it with mmap=True."
        ) from error
    except DamageError as error:
        raise StoreError(
            f"Expected a saved policy in {str(path)!r}; got {error}. Save it anew with "
            f"policy.save(...) or 'forestall fit', or take it from a copy."
        ) from error
