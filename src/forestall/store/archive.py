"""The file: a zip of one JSON document and arrays, none compressed, every size known.

Arrays stand in it as ``.npy`` members whose data begin at multiples of 64 bytes, so
that they can be used in place. Whatever a file claims is held against its length before
anything is allocated: reading takes as much memory as the file is long, or none where
it is mapped.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from forestall.arrays import Array

DOCUMENT = "policy.json"
# Bytes that the document and the directory of the zip may have at most: parsed, they
# take some twenty times as much.
LONGEST = 1 << 24
# Data begin at multiples of this, as linear algebra likes them.
ALIGNED = 64
# What an array may consist of, and how large its sides may be.
DTYPES = re.compile(r"\|b1|[|]?[iu]1|<[iu][248]|<f[248]|<c(8|16)")
LONGEST_SIDE, MOST_SIDES = 2**40, 8


class DamageError(Exception):
    """What is wrong with a file; a message goes on with it after "got"."""


@dataclass(frozen=True)
class Entry:
    """One array in a file.

    Args:
        name: The member that holds it.
        dtype: What it consists of, as numpy writes it.
        shape: Its sides.
        order: ``"C"`` or ``"F"``: which index runs fastest, the last or the first.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    order: str

    @property
    def nbytes(self) -> int:
        """How many bytes it takes, as a Python number that cannot overflow."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def header(self) -> bytes:
        """What its member begins with, up to the padding; numpy reads it."""
        last = self.order == "F"
        told = {"descr": self.dtype, "fortran_order": last, "shape": self.shape}
        return repr(told).encode()

    @staticmethod
    def read(told: Any) -> Entry:
        """Read what the document tells of an array."""
        keys = ("name", "dtype", "shape", "order")
        if not isinstance(told, dict) or set(told) != set(keys):
            raise DamageError(f"an array without {', '.join(keys)}")
        name, dtype, shape, order = (told[key] for key in keys)
        if not isinstance(name, str) or not isinstance(dtype, str):
            raise DamageError("an array whose name or dtype is no text")
        if not DTYPES.fullmatch(dtype) or order not in ("C", "F"):
            raise DamageError("an array that does not consist of plain numbers")
        if not isinstance(shape, list) or len(shape) > MOST_SIDES:
            raise DamageError("an array without a shape")
        if not all(type(k) is int and 0 <= k <= LONGEST_SIDE for k in shape):
            raise DamageError("an array of impossible shape")
        if math.prod(max(k, 1) for k in shape) > LONGEST_SIDE:
            raise DamageError("an array of impossible size")
        return Entry(name, dtype, tuple(shape), order)


def write(file: BinaryIO, document: bytes, arrays: Mapping[Entry, Array]) -> None:
    """Write document and arrays, and wait until they are on the disk."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(_member(DOCUMENT), "w") as member:
            member.write(document)
        for entry, array in arrays.items():
            large = entry.nbytes > 1 << 30
            info = _member(entry.name)
            with archive.open(info, "w", force_zip64=large) as member:
                member.write(_padded(entry.header, file.tell()))
                member.write(_raw(entry, array))
    file.flush()
    os.fsync(file.fileno())


def _member(name: str) -> zipfile.ZipInfo:
    # Without the time of day, equal policies make equal files.
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o600 << 16
    return info


def _padded(header: bytes, start: int) -> bytes:
    """Complete a header so that what follows it is aligned in the file."""
    spaces = -(start + 10 + len(header) + 1) % ALIGNED
    length = struct.pack("<H", len(header) + spaces + 1)
    return b"\x93NUMPY\x01\x00" + length + header + b" " * spaces + b"\n"


def _raw(entry: Entry, array: Array) -> memoryview:
    flat = np.ascontiguousarray(array.T if entry.order == "F" else array)
    return flat.reshape(-1).view(np.uint8).data


@dataclass(frozen=True, eq=False)
class Archive:
    """A file whose directory has been checked.

    Args:
        buffer: All its bytes, read-only, in memory or mapped.
        members: The directory.
        end: Where the directory begins, and members end.
    """

    buffer: Array
    members: Mapping[str, zipfile.ZipInfo]
    end: int

    @classmethod
    def read(cls, path: Path, *, mapped: bool) -> Archive:
        """Read the directory, and the rest or nothing more."""
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise DamageError("an empty file")
            _check_directory(file, size)
            members, end = _directory(file)
            file.seek(0)
            buffer = _mapped(file) if mapped else np.fromfile(file, dtype=np.uint8)
        if len(buffer) != size:
            raise DamageError("a file that changed while it was read")
        buffer.flags.writeable = False
        return cls(buffer, members, end)

    def document(self) -> bytes:
        """Give the JSON document."""
        start, stop = self._span(DOCUMENT)
        return self.buffer[start:stop].tobytes()

    def array(self, entry: Entry) -> Array:
        """Give an array in place: a view on the bytes of the file."""
        start, stop = self._span(entry.name)
        start += self._header_length(entry, start, stop)
        if entry.nbytes != stop - start:
            raise DamageError(
                f"{stop - start} bytes for an array of {entry.nbytes}, {entry.name!r}"
            )
        if not entry.nbytes:
            array = np.empty(entry.shape, entry.dtype)
            array.flags.writeable = False
            return array
        if entry.dtype == "|b1" and self.buffer[start:stop].max() > 1:
            raise DamageError(f"truth values that are none in {entry.name!r}")
        return np.ndarray(
            entry.shape,
            entry.dtype,
            buffer=self.buffer.data,
            offset=start,
            order="F" if entry.order == "F" else "C",
        )

    def _header_length(self, entry: Entry, start: int, stop: int) -> int:
        """Hold the header against the document; it is not parsed."""
        begin = self.buffer[start : min(stop, start + 10)].tobytes()
        if len(begin) < 10 or begin[:8] != b"\x93NUMPY\x01\x00":
            raise DamageError(f"no array in {entry.name!r}")
        length = int.from_bytes(begin[8:], "little")
        header = self.buffer[start + 10 : min(stop, start + 10 + length)].tobytes()
        if header.rstrip(b" \n") != entry.header or len(header) != length:
            raise DamageError(f"another array than announced in {entry.name!r}")
        return 10 + length

    def _span(self, name: str) -> tuple[int, int]:
        """Find the bytes of a member, and check that they are what was written."""
        info = self.members.get(name)
        if info is None:
            raise DamageError(f"no member {name[:80]!r}")
        at, written = info.header_offset, info.filename.encode()
        local = self.buffer[at : at + 30].tobytes()
        if len(local) < 30 or local[:4] != b"PK\x03\x04":
            raise DamageError(f"no member at the place of {name!r}")
        n_name, n_extra = struct.unpack("<HH", local[26:])
        start = at + 30 + n_name + n_extra
        stop = start + info.file_size
        if self.buffer[at + 30 : at + 30 + n_name].tobytes() != written:
            raise DamageError(f"another member at the place of {name!r}")
        if stop > self.end:
            raise DamageError(f"a member {name!r} that reaches beyond the file")
        if zlib.crc32(self.buffer[start:stop].data) != info.CRC:
            raise DamageError(f"changed bytes in {name!r}")
        return start, stop


def _mapped(file: BinaryIO) -> Array:
    # Not by numpy: other processes would be told the name of the file, and map whatever
    # has taken its place since.
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(pages, dtype=np.uint8)


def _check_directory(file: BinaryIO, size: int) -> None:
    """Refuse a long directory before it is parsed."""
    file.seek(max(0, size - 98))
    tail = file.read(98)
    if len(tail) < 22 or tail[-22:-18] != b"PK\x05\x06" or tail[-2:] != b"\0\0":
        raise DamageError("a file that is no zip, or not all of one")
    length = int.from_bytes(tail[-10:-6], "little")
    # The wide record stands before the narrow one and the pointer to it.
    if len(tail) == 98 and tail[:4] == b"PK\x06\x06" and tail[-42:-38] == b"PK\x06\x07":
        length = max(length % 0xFFFFFFFF, int.from_bytes(tail[40:48], "little"))
    if length > LONGEST:
        raise DamageError(f"a directory of {length} bytes")


def _directory(file: BinaryIO) -> tuple[dict[str, zipfile.ZipInfo], int]:
    try:
        with zipfile.ZipFile(file) as archive:
            infos, end = archive.infolist(), archive.start_dir
    except (
        ArithmeticError,
        EOFError,
        NotImplementedError,
        OSError,
        ValueError,
        struct.error,
        zipfile.BadZipFile,
    ) as error:
        raise DamageError(f"a zip that cannot be read ({error})") from error
    for info in infos:
        plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
        if not plain or info.compress_size != info.file_size:
            raise DamageError(f"a compressed member, {info.filename[:80]!r}")
        if info.header_offset < 0 or info.file_size < 0:
            raise DamageError("a member at an impossible place")
    members = {info.filename: info for info in infos}
    if len(members) != len(infos):
        raise DamageError("two members of one name")
    return members, end
