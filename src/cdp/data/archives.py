"""Limits on image sizes, and images inside .zip and .tar files.

Members are read at their offset, from any number of threads and processes.
"""

from __future__ import annotations

import os
import re
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Protocol

from cdp.errors import InputError
from cdp.storage.array_files import brief, regular_size

_IN_ARCHIVE = re.compile(r"(.+?\.(?:zip|tar|rec))!(.+)", re.IGNORECASE | re.DOTALL)
_TAR_BLOCK = 512


class Archive(Protocol):
    """Anything that hands out entries by name."""

    def read(self, entry: str) -> bytes:
        """Read the bytes of one entry; InputError if it is missing or damaged."""


def split_location(location: str) -> tuple[str | None, str]:
    """Split `faces.zip!anna/3.png` into (archive, entry); a plain file gives (None, location)."""
    match = _IN_ARCHIVE.fullmatch(location)
    return (match[1], match[2]) if match else (None, location)


def open_archive(path: str | Path) -> Archive:
    """Return the archive at `path`, by its ending: .zip, .tar or .rec."""
    from cdp.data.record_files import RecordFile

    suffix = Path(path).suffix.lower()
    return (
        ZipArchive(path) if suffix == ".zip" else TarArchive(path) if suffix == ".tar" else RecordFile(path)
    )


class RandomFile:
    """A file read at given offsets.

    There is no position that threads or forked processes could move under each other, so one open file serves
    them all; it is closed with the last reference to it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._descriptor = -1
        try:
            self.size = regular_size(path)
            self._descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise InputError(
                f"{path}: cannot be opened ({error.strerror}); check the path.",
                code="archive-unopenable",
                file=path,
            ) from None

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes at `offset`; refuse what exceeds the limit of an image."""
        if offset + length > self.size:
            raise InputError(
                f"{self.path}: cut short, it ends at byte {self.size:,} and more was expected at byte "
                f"{offset:,}; copy it again.",
                code="archive-cut-short",
                file=self.path,
                offset=offset,
            )
        refuse_many_bytes(length, f"{self.path}, at byte {offset:,}")
        parts = []
        while length > 0:
            try:
                part = os.pread(self._descriptor, length, offset)
            except OSError as error:
                reason = error.strerror
                raise InputError(
                    f"{self.path}: cannot be read at byte {offset:,} ({reason}).",
                    code="archive-unreadable",
                    file=self.path,
                    offset=offset,
                ) from None
            if not part:
                raise InputError(
                    f"{self.path}: cut short while it was read, at byte {offset:,}; copy it again.",
                    code="archive-cut-while-read",
                    file=self.path,
                    offset=offset,
                )
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class ZipArchive:
    """The entries of a .zip file, stored or deflated."""

    def __init__(self, path: str | Path) -> None:
        self._file = RandomFile(path)
        try:
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
        except NotImplementedError as error:
            raise InputError(
                f"{path}: its compression is not supported ({brief(error)}); pack it again.",
                code="archive-packing-unknown",
                file=path,
            ) from None
        except (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, EOFError, ValueError, OSError):
            raise InputError(
                f"{path}: cut short or not a .zip file; copy or pack it again.", code="zip-damaged", file=path
            ) from None
        self.entries = [info.filename for info in infos if not info.is_dir()]
        self._infos = {info.filename: info for info in infos}

    def read(self, entry: str) -> bytes:
        """Return the unpacked bytes of one entry, checked against its checksum."""
        info = self._infos.get(entry)
        where = f"{self._file.path}!{entry}"
        if info is None:
            raise InputError(
                f"{where}: the archive has no such entry; check the spelling.",
                code="archive-entry-missing",
                file=self._file.path,
                entry=entry,
            )
        if info.flag_bits & 1:
            raise InputError(
                f"{where}: encrypted; pack the archive again without a password.",
                code="archive-entry-encrypted",
                file=self._file.path,
                entry=entry,
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(
                f"{where}: its compression is not supported; pack it again.",
                code="archive-entry-packing-unknown",
                file=self._file.path,
                entry=entry,
            )
        refuse_many_bytes(info.file_size, where)
        header = self._file.read(info.header_offset, 30)
        if header[:4] != b"PK\3\4":
            raise InputError(
                f"{where}: damaged, there is no entry at its offset; copy the archive again.",
                code="archive-entry-not-at-offset",
                file=self._file.path,
                entry=entry,
            )
        n_name, n_extra = struct.unpack("<HH", header[26:30])
        packed = self._file.read(info.header_offset + 30 + n_name + n_extra, info.compress_size)
        try:
            # Not zlib.decompress(): a few bytes may unpack to more than any machine holds, whatever the
            # header says.
            is_deflated = info.compress_type == zipfile.ZIP_DEFLATED
            data = zlib.decompressobj(-15).decompress(packed, info.file_size + 1) if is_deflated else packed
        except zlib.error:
            data = b""
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise InputError(
                f"{where}: damaged, it does not fit its checksum; copy the archive again.",
                code="archive-entry-checksum-differs",
                file=self._file.path,
                entry=entry,
            )
        return data


class TarArchive:
    """The regular files of an uncompressed .tar file."""

    def __init__(self, path: str | Path) -> None:
        self._file = RandomFile(path)
        self._spans: dict[str, tuple[int, int]] = {}
        self.entries: list[str] = []
        if self._file.size >= 2 and self._file.read(0, 2) == b"\x1f\x8b":
            raise InputError(
                f"{path}: compressed with gzip, so no image can be found in it by its offset; unpack it with "
                "gunzip.",
                code="tar-compressed",
                file=path,
            )
        try:
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    if member.islnk() or member.issym():
                        raise InputError(
                            f"{path}!{member.name}: a link, not a file; pack it again with tar -h.",
                            code="tar-entry-is-link",
                            file=path,
                            entry=member.name,
                        )
                    if member.isreg():
                        self.entries.append(member.name)
                        self._spans[member.name] = (member.offset_data, member.size)
                end = archive.offset
        except InputError:
            raise
        except (tarfile.TarError, EOFError, OSError, ValueError):
            raise InputError(
                f"{path}: cut short or not a .tar file; copy or pack it again.", code="tar-damaged", file=path
            ) from None
        # tarfile takes damaged bytes between two files, and a cut there, for the end of the archive.
        if end + _TAR_BLOCK > self._file.size or any(self._file.read(end, _TAR_BLOCK)):
            raise InputError(
                f"{path}: cut short or damaged after {len(self.entries):,} files, the end mark is missing; "
                "copy or pack it again.",
                code="tar-end-missing",
                file=path,
                entries=len(self.entries),
            )

    def read(self, entry: str) -> bytes:
        """Return the bytes of one file."""
        if entry not in self._spans:
            raise InputError(
                f"{self._file.path}!{entry}: the archive has no such entry; check the spelling.",
                code="archive-entry-missing",
                file=self._file.path,
                entry=entry,
            )
        return self._file.read(*self._spans[entry])


VARIABLE = "CDP_MAX_PIXELS"
# Phones make photos of 200 million.
MAX_PIXELS = 250_000_000
# What an uncompressed image with transparency takes; compressed ones take less.
_BYTES_PER_PIXEL = 4
_HEADERS = 2**20


def max_pixels() -> int:
    """Return the most pixels that an image may have: $CDP_MAX_PIXELS, or 250 million.

    An image beyond it is an error and never changed, so no result depends on this setting; and in the
    environment it holds for every process that decodes.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        return MAX_PIXELS
    if not (given.isascii() and given.isdigit() and 0 < len(given.lstrip("0")) <= 15):
        raise InputError(
            f"{VARIABLE}={given}: a number of pixels is needed, for example {MAX_PIXELS}.",
            code="max-pixels-not-a-number",
            key=VARIABLE,
            value=given,
        )
    return int(given)


def refuse_many_pixels(width: int, height: int) -> None:
    """Refuse an image that would take too much memory once decoded."""
    if width * height > max_pixels():
        raise InputError(
            f"the image has {width:,} x {height:,} pixels, more than the limit of {max_pixels():,}; "
            f"shrink or skip it, or raise {VARIABLE}.",
            code="image-too-many-pixels",
            width=width,
            height=height,
            most=max_pixels(),
        )


def refuse_many_bytes(n_bytes: int, what: str) -> None:
    """Refuse a file or an entry of an archive that is longer than any image of allowed size."""
    allowed = _BYTES_PER_PIXEL * max_pixels() + _HEADERS
    if n_bytes > allowed:
        raise InputError(
            f"{what}: {n_bytes:,} bytes, more than an image of {max_pixels():,} pixels takes; leave it out, "
            f"or set {VARIABLE} to what is allowed.",
            code="image-too-many-bytes",
            source=what,
            found=n_bytes,
            max_pixels=max_pixels(),
        )
