"""
The journal of a run, ``attempts.jsonl``: one checksummed line per record, only ever appended to.

A line is ``{"crc":"<8 hex digits>","record":{...}}``; the CRC-32 covers the exact bytes of the record's
object. Whatever happens to a line, its neighbours stay readable.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from ..errors import StoreError
from ..records import JournalRecord, PlanRecord, TrialRecord
from .encode import to_json, with_finite_numbers
from .files import SYSTEM_FILES, Files, write_all
from .layout import JOURNAL_FILE

_HEAD: Final = b'{"crc":"'
_MIDDLE: Final = b'","record":'
_BODY_START: Final = len(_HEAD) + 8 + len(_MIDDLE)
_RECORDS: Final = msgspec.json.Decoder(TrialRecord | PlanRecord)


# --- lines ----------------------------------------------------------------------------------------


def encode_line(record: JournalRecord) -> bytes:
    """Return the journal line of a record."""
    return frame_line(encode_body(record))


def encode_body(record: JournalRecord) -> bytes:
    """Return a record's object as it stands inside its line."""
    match record:
        case TrialRecord():
            return to_json(with_finite_numbers(record))
        case PlanRecord():
            return to_json(record)


def frame_line(body: bytes) -> bytes:
    """Put a record's object into a line with its checksum."""
    return b"%b%08x%b%b}\n" % (_HEAD, crc32(body), _MIDDLE, body)


def _body(line: bytes) -> bytes | None:
    """Return the record's object of a sound line, None for a damaged one."""
    if line[:8] != _HEAD or line[16:_BODY_START] != _MIDDLE or line[-1:] != b"}":
        return None
    body = line[_BODY_START:-1]
    return body if line[8:16] == b"%08x" % crc32(body) else None


# --- reading --------------------------------------------------------------------------------------


class JournalReader:
    """
    Iterate over the records of a journal, one line in memory at a time; blocks.

    Damaged lines and records of unknown kinds are skipped and counted; the counts hold for the latest
    iteration. A missing file has no records: the run died before its first.

    Raises:
        StoreError: While iterating: the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self.damaged_lines = 0
        self.unknown_records = 0

    def __iter__(self) -> Iterator[JournalRecord]:
        self.damaged_lines = self.unknown_records = 0
        for body in self._bodies():
            try:
                record = _RECORDS.decode(body)
            except msgspec.DecodeError:
                self.unknown_records += 1  # the checksum is right, so a newer version wrote it
            else:
                yield record

    def _bodies(self) -> Iterator[bytes]:
        try:
            with Path(self._path).open("rb") as file:
                for line in file:
                    if (body := _body(line.rstrip())) is not None:
                        yield body
                    elif not line.isspace():
                        self.damaged_lines += 1
                        yield from _salvage(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read {str(self._path)!r}: {error.strerror}") from error


def _salvage(line: bytes) -> Iterator[bytes]:
    """
    Find sound records in a damaged line: it is two lines when the newline between them was hit.

    The head of a line cannot stand inside a record, where its quotes would be escaped.
    """
    at = line.find(_HEAD)
    while at >= 0:
        following = line.find(_HEAD, at + 1)
        piece = line[at : following if following >= 0 else None].rstrip()
        body = _body(piece)
        if body is None:
            body = _body(piece[:-1])  # the last byte is what the newline has become
        if body is not None:
            yield body
        at = following


def read_journal(path: str | Path) -> JournalReader:
    """Return a reader of all records of a journal; it can be iterated more than once."""
    return JournalReader(path)


# --- appending ------------------------------------------------------------------------------------


class Journal:
    """
    Append to a journal.

    Opening it ends a line that a crash has torn, so that the next record is not glued to it.
    """

    def __init__(self, path: str, *, files: Files = SYSTEM_FILES) -> None:
        self._files = files
        self._descriptor = files.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._end = os.fstat(self._descriptor).st_size
        try:
            if self._end and os.pread(self._descriptor, 1, self._end - 1) != b"\n":
                self.append(b"\n")
        except OSError:
            self.close()
            raise

    def append(self, lines: bytes) -> None:
        """
        Write lines; they survive a power cut once this returns.

        Raises:
            OSError: They could not be written; what had been of them is cut off again.
        """
        try:
            write_all(self._files, self._descriptor, lines)
            self._files.sync(self._descriptor)
            if os.fstat(self._descriptor).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, f"{JOURNAL_FILE} was deleted")
        except OSError:
            self._cut_back()
            raise
        self._end += len(lines)

    def _cut_back(self) -> None:
        try:
            self._files.truncate(self._descriptor, self._end)
        except OSError:
            return  # the next one to open the journal ends the torn line

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._descriptor)
