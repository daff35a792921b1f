"""The file of a ledger: rows that are only ever added, each sealed together with the one before.

An SQLite database in WAL mode with full synchronization: what was acknowledged survives a killed
process, and one process writes at a time. Triggers refuse to change or delete rows; whoever gets
around them breaks the chain of digests, which every reading checks. A chain does not see a tail
that was cut off, nor a whole chain that was written anew: for that, compare its head with one that
was written down elsewhere. SQLite's locks need a local disk, not a network share.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dplateau.errors import InvalidInput, LedgerBroken
from dplateau.ground.files import note_written

VERSION = 1
# "dpl1": tells a ledger from other SQLite files.
_APPLICATION = 0x64706C31
_FIRST = "0" * 64
# How long to wait for another process that is writing.
_PATIENCE = 60.0
# SQLite notes which locks its process holds, and a child that is forked meanwhile takes over the
# notes without the locks: threads use ledgers one after the other, and a fork waits for them.
_ONE_AT_A_TIME = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_ONE_AT_A_TIME.acquire,
        after_in_parent=_ONE_AT_A_TIME.release,
        after_in_child=_ONE_AT_A_TIME.release,
    )

_TABLE = """CREATE TABLE entries (
    sequence INTEGER PRIMARY KEY,
    written TEXT NOT NULL,
    kind TEXT NOT NULL,
    content TEXT NOT NULL,
    previous TEXT NOT NULL,
    digest TEXT NOT NULL
)"""
_TRIGGERS = (
    """CREATE TRIGGER entries_are_not_changed BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END""",
    """CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END""",
    # Also what stops INSERT OR REPLACE, which deletes without asking the trigger above.
    """CREATE TRIGGER entries_are_added_at_the_end BEFORE INSERT ON entries
WHEN NEW.sequence IS NOT (SELECT COALESCE(MAX(sequence), 0) + 1 FROM entries)
BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END""",
)
_SCHEMA = (_TABLE, *_TRIGGERS)


@dataclass(frozen=True)
class Row:
    """One line of the ledger; ``digest`` seals it and, through ``previous``, all before it."""

    sequence: int
    written: str
    kind: str
    content: str
    previous: str
    digest: str

    @classmethod
    def after(cls, last: Row | None, kind: str, content: Mapping[str, Any]) -> Row:
        """Return the row that comes next."""
        sequence = 1 if last is None else last.sequence + 1
        written = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        previous = _FIRST if last is None else last.digest
        return cls(
            sequence,
            written,
            kind,
            text,
            previous,
            _sealed(sequence, written, kind, text, previous),
        )

    def data(self) -> dict[str, Any]:
        """Return the content as data."""
        try:
            content = json.loads(self.content)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise LedgerBroken(f"row {self.sequence} of the ledger holds no JSON object")
        return content


Append = Callable[[str, Mapping[str, Any]], Row]


@dataclass(frozen=True)
class Book:
    """The rows of one file. Nothing is kept open between calls, so forked processes are safe."""

    path: Path
    # The file itself, even if the process changes its folder.
    place: Path = field(init=False)

    def __post_init__(self) -> None:
        """Note where the file is."""
        object.__setattr__(self, "place", self.path.absolute())

    @classmethod
    def create(cls, path: Path, kind: str, content: Mapping[str, Any]) -> Book:
        """Make a new file with its first row; a file that is there already is left alone."""
        try:
            if path.exists():
                raise FileExistsError
            _refuse_old_logs(path)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
                fresh = Path(folder) / "new"
                _write_new(fresh, Row.after(None, kind, content))
                # Unlike a rename, a link never takes the place of a file made in the meantime.
                os.link(fresh, path)
                note_written(path)
        except FileExistsError:
            raise InvalidInput(f"{path} exists already; a ledger is never written anew") from None
        except FileNotFoundError:
            message = f"cannot write {path}: there is no folder {path.parent}"
            raise InvalidInput(message) from None
        except OSError as error:
            raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
        except (sqlite3.Error, ValueError) as error:  # a full disk; a name that is none
            raise InvalidInput(f"cannot write {path}: {_in_words(error)}") from None
        return cls(path)

    def rows(self) -> tuple[Row, ...]:
        """Return all rows, once the chain is found whole."""
        with self._opened(reading=True) as connection:
            return self._read(connection)

    @contextmanager
    def adding(self) -> Iterator[tuple[tuple[Row, ...], Append]]:
        """Keep other writers out; what is appended is on the disk when the block has ended."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            rows = list(self._read(connection))

            def append(kind: str, content: Mapping[str, Any]) -> Row:
                row = Row.after(rows[-1], kind, content)
                _insert(connection, row)
                rows.append(row)
                return row

            try:
                yield tuple(rows), append
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended it
                    connection.execute("ROLLBACK")
                raise
            try:
                connection.execute("COMMIT")
            finally:
                # Ctrl-C while the disk is awaited is heard once all is written.
                if not connection.in_transaction:
                    note_written(self.path)

    @contextmanager
    def _opened(self, *, reading: bool = False) -> Iterator[sqlite3.Connection]:
        self._require_file()
        still = reading and self._is_still()
        try:
            with _ONE_AT_A_TIME, closing(_connect(self.place, still=still)) as connection:
                yield connection
        except sqlite3.OperationalError as error:
            raise InvalidInput(f"cannot use the ledger {self.path}: {_in_words(error)}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError) as error:
            raise InvalidInput(f"{self.path} is not a ledger: {error}") from None

    def _require_file(self) -> None:
        """Refuse what is no file, and a file of several names: SQLite keeps a log beside each."""
        try:
            found = self.place.stat()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            found = None
        except OSError as error:
            raise InvalidInput(f"cannot use the ledger {self.path}: {error.strerror}") from None
        if found is None or not stat.S_ISREG(found.st_mode):
            raise InvalidInput(
                f"there is no ledger {self.path}; 'dplateau ledger init' or Ledger.create makes one"
            )
        if found.st_nlink > 1:
            raise InvalidInput(
                f"{self.path} is one of {found.st_nlink} names (hard links) of one file, and what "
                "is spent under one of them may be lost under another: remove the other names "
                "('find . -samefile' shows them), or read a copy; symbolic links do no harm"
            )

    def _is_still(self) -> bool:
        """Return whether the file lies where this process cannot write, and no write is open."""
        file = self.place.resolve()
        log = file.with_name(f"{file.name}-wal")
        return not (os.access(file.parent, os.W_OK) or log.exists())

    def _read(self, connection: sqlite3.Connection) -> tuple[Row, ...]:
        """Return all rows; a foreign format or a broken chain is refused."""
        kind, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        if kind != _APPLICATION:
            raise InvalidInput(f"{self.path} is not a ledger: it is another program's database")
        if version != VERSION:
            raise InvalidInput(
                f"{self.path} is a ledger of format {version}; this release reads {VERSION}"
            )
        schema = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        if sorted(sql for (sql,) in schema) != sorted(_SCHEMA):
            raise LedgerBroken(f"{self.path}: the tables and triggers are not those of a ledger")
        columns = "sequence, written, kind, content, previous, digest"
        rows = connection.execute(f"SELECT {columns} FROM entries ORDER BY sequence").fetchall()
        return _checked([Row(*row) for row in rows], self.path)


def _in_words(error: sqlite3.Error | ValueError) -> str:
    """Return what went wrong; SQLite calls a disk without room an "I/O error" as well."""
    return f"the disk is full, or it fails ({error})" if "disk" in str(error) else str(error)


def _refuse_old_logs(path: Path) -> None:
    """Refuse what a ledger that is gone left beside its name: SQLite would write it into the new.

    A log does not know which file it belongs to, so the new ledger would hold the old one's rows.
    """
    for ending in ("-wal", "-shm", "-journal"):
        left = path.with_name(path.name + ending)
        if os.path.lexists(left):
            raise InvalidInput(
                f"cannot write {path}: {left.name} lies beside it and belongs to an older ledger "
                "of this name; bring that ledger back, remove the log, or choose another name"
            )


def _write_new(path: Path, first: Row) -> None:
    with (
        _ONE_AT_A_TIME,
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        for statement in _SCHEMA:
            connection.execute(statement)
        _insert(connection, first)


def _connect(path: Path, *, still: bool) -> sqlite3.Connection:
    # SQLite keeps locks in a file beside its database, which an archive has no room for.
    mode = "immutable=1" if still else "mode=rw"
    connection = sqlite3.connect(
        f"{path.as_uri()}?{mode}", uri=True, timeout=_PATIENCE, isolation_level=None
    )
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _insert(connection: sqlite3.Connection, row: Row) -> None:
    values = (row.sequence, row.written, row.kind, row.content, row.previous, row.digest)
    connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", values)


def _checked(rows: list[Row], path: Path) -> tuple[Row, ...]:
    """Return the rows if each follows from the one before."""
    if not rows:
        raise LedgerBroken(f"{path}: the ledger has lost all its rows")
    previous = _FIRST
    for place, row in enumerate(rows, start=1):
        texts = (row.written, row.kind, row.content, row.previous, row.digest)
        whole = row.sequence == place and all(isinstance(text, str) for text in texts)
        if not whole or row.previous != previous or row.digest != _digest(row):
            raise LedgerBroken(
                f"{path}: the chain of the ledger is broken at row {place}: rows were changed, "
                "removed or moved"
            )
        previous = row.digest
    return tuple(rows)


def _digest(row: Row) -> str:
    return _sealed(row.sequence, row.written, row.kind, row.content, row.previous)


def _sealed(sequence: int, written: str, kind: str, content: str, previous: str) -> str:
    text = json.dumps([sequence, written, kind, content, previous])
    return hashlib.sha256(text.encode()).hexdigest()
