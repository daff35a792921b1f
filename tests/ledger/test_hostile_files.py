"""Files that are no ledger, or no longer one, end with a verdict, never with a traceback."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dplateau import InvalidInput, Ledger, LedgerBroken, foreign
from dplateau.cli import main
from dplateau.ledger.book import Row

Change = Callable[[sqlite3.Connection], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ledger = Ledger.create(tmp_path / "survey.ledger", epsilon=3.0, delta=1e-5)
    for number in range(4):
        ledger.spend(foreign(mu=0.1, neighbors="add_remove"), name=f"release {number}")
    return ledger.path


def changed(path: Path, *statements: str | Change, triggers: bool = True) -> None:
    """Change the file as somebody would who knows SQLite; the triggers are put back if asked."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        kept = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in kept:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            if isinstance(statement, str):
                connection.execute(statement)
            else:
                statement(connection)
        for _, sql in kept if triggers else []:
            connection.execute(sql)


def rewritten(
    connection: sqlite3.Connection, change: Callable[[int, str, str], tuple[str, str]]
) -> None:
    """Write the whole chain anew, each row's kind and content as ``change`` says."""
    rows = connection.execute("SELECT sequence, kind, content FROM entries ORDER BY sequence")
    last: Row | None = None
    for sequence, kind, content in rows.fetchall():
        kind, content = change(sequence, kind, content)
        last = Row.after(last, kind, json.loads(content))
        connection.execute(
            "UPDATE entries SET written = ?, kind = ?, content = ?, previous = ?, digest = ? "
            "WHERE sequence = ?",
            (last.written, last.kind, last.content, last.previous, last.digest, sequence),
        )


BROKEN: dict[str, tuple[str | Change, ...]] = {
    "a cheaper row": ("UPDATE entries SET content = replace(content, '0.1', '0.01')",),
    "another date": ("UPDATE entries SET written = '2001-01-01' WHERE sequence = 3",),
    "another kind": ("UPDATE entries SET kind = 'refused' WHERE sequence = 3",),
    "a row removed": ("DELETE FROM entries WHERE sequence = 3",),
    "the first row removed": ("DELETE FROM entries WHERE sequence = 1",),
    "all rows removed": ("DELETE FROM entries",),
    "two rows exchanged": (
        "UPDATE entries SET sequence = 99 WHERE sequence = 3",
        "UPDATE entries SET sequence = 3 WHERE sequence = 4",
        "UPDATE entries SET sequence = 4 WHERE sequence = 99",
    ),
    "a number for a text": ("UPDATE entries SET digest = 7 WHERE sequence = 2",),
    "a column more": ("ALTER TABLE entries ADD COLUMN note TEXT",),
    "a table more": ("CREATE TABLE notes (text TEXT)",),
    "no table": ("DROP TABLE entries",),
}


@pytest.mark.parametrize("what", BROKEN)
def test_rows_that_were_tampered_with_are_seen(
    path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(path, *BROKEN[what], triggers=what != "no table")
    with pytest.raises(LedgerBroken, match=r"chain of the ledger|lost all|tables and triggers"):
        Ledger(path).statement()
    with pytest.raises(LedgerBroken):
        Ledger(path).spend(foreign(mu=0.1, neighbors="add_remove"))
    assert verdict(["ledger", "show", str(path)], capsys) == 1


def test_triggers_that_were_removed_are_missed(path: Path) -> None:
    changed(path, triggers=False)
    with pytest.raises(LedgerBroken, match="tables and triggers are not those of a ledger"):
        Ledger(path).statement()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n, k, c: (k, c.replace('"amount":0.0', '"amount":9.0')), "more than is left"),
        (lambda n, k, c: ("init" if n == 3 else k, c), "kind must be one of"),
        (lambda n, k, c: ("spent" if n == 1 else k, c), "it begins with 'spent'"),
        (lambda n, k, c: (k, '{"entry": 2}' if n == 3 else c), "'name'"),
        (lambda n, k, c: ("settled", '{"entry": 2}') if n == 3 else (k, c), "is not reserved"),
        (lambda n, k, c: (k, c.replace('"epsilon":3.0', '"epsilon":-1')), "epsilon must be"),
        (lambda n, k, c: (k, c.replace('"cost":{', '"cost":null,"x":{')), "never planned"),
        (lambda n, k, c: (k, c.replace('"amount":', '"amount":"much","x":')), "real number"),
        (lambda n, k, c: (k, "[]" if n == 2 else c), "row 2 of the ledger holds no JSON object"),
    ],
    ids=range(9),
)
def test_a_whole_chain_of_nonsense_is_refused(
    path: Path,
    change: Callable[[int, str, str], tuple[str, str]],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed(path, lambda connection: rewritten(connection, change))
    with pytest.raises(LedgerBroken, match=message):
        Ledger(path).statement()
    assert verdict(["ledger", "show", str(path)], capsys) == 1


def test_what_is_no_ledger_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, empty, other, folder = (tmp_path / name for name in ("text", "empty", "other", "folder"))
    text.write_text("no database at all, but long enough to be looked at as one " * 40)
    empty.touch()
    folder.mkdir()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE entries (sequence INTEGER)")
    for file, message in (
        (text, "not a ledger: file is not a database"),
        (empty, "another program's database"),
        (other, "another program's database"),
        (folder, "there is no ledger"),
        (tmp_path / "nowhere", "there is no ledger"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Ledger(file).statement()
        assert verdict(["ledger", "show", str(file)], capsys) == 2


def test_names_that_share_a_file_are_refused(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite keeps a log beside each name: what was spent under one was lost under the other."""
    other, link = path.with_name("other.ledger"), path.with_name("link.ledger")
    link.symlink_to(path)
    assert Ledger(link).spend(foreign(mu=0.1, neighbors="add_remove")).number == 6
    assert len(Ledger(path).statement().entries) == 5
    other.hardlink_to(path)
    for name in (path, other, link):
        with pytest.raises(InvalidInput, match="one of 2 names"):
            Ledger(name).spend(foreign(mu=0.1, neighbors="add_remove"))
        assert verdict(["ledger", "show", str(name)], capsys) == 2
    other.unlink()
    assert len(Ledger(path).statement().entries) == 5


def test_a_log_that_a_removed_ledger_left_is_no_part_of_a_new_one(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new ledger took the log of an old one in, with its rows and its larger budget."""
    with closing(sqlite3.connect(path)) as reader:  # somebody reads: the log stays where it is
        reader.execute("SELECT COUNT(*) FROM entries").fetchone()
        Ledger(path).spend(foreign(mu=0.1, neighbors="add_remove"))
        log = path.with_name(f"{path.name}-wal")
        kept = log.read_bytes()
    path.unlink()
    log.write_bytes(kept)
    message = rf"{log.name} lies beside it and belongs to an older ledger"
    with pytest.raises(InvalidInput, match=message):
        Ledger.create(path, epsilon=1.0, delta=1e-6)
    assert verdict(["ledger", "init", str(path), "--epsilon", "1", "--delta", "0"], capsys) == 2
    assert not path.exists()
    log.unlink()
    made = Ledger.create(path, epsilon=1.0, delta=1e-6).statement()
    assert made.settings.budget.epsilon == 1.0


def test_paths_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("x" * 300, "a\0b", "none/a", "file/a"):
        with pytest.raises(InvalidInput, match="cannot write"):
            Ledger.create(tmp_path / name, epsilon=1.0, delta=0.0)
        with pytest.raises(InvalidInput, match=r"there is no ledger|cannot use the ledger"):
            Ledger(tmp_path / name).statement()
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_grow_is_said(tmp_path: Path) -> None:
    """Files of a limited size stand for a full disk: what was acknowledged stays, in words."""
    done = subprocess.run(
        [sys.executable, "-c", CRAMPED, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["made"].startswith(f"cannot write {tmp_path / 'new.ledger'}: ")
    assert found["spent"].startswith(f"cannot use the ledger {tmp_path / 'a.ledger'}: ")
    # SQLite says "disk I/O error", also where the disk is sound and full.
    assert all("the disk is full, or it fails (" in found[name] for name in ("made", "spent"))
    assert found["acknowledged"] >= 3
    assert found["entries"] == found["acknowledged"]
    assert [file.name for file in tmp_path.iterdir()] == ["a.ledger"]


CRAMPED = """
import json, resource, sys
from pathlib import Path
from dplateau import InvalidInput, Ledger, foreign

folder = Path(sys.argv[1])
ledger = Ledger.create(folder / "a.ledger", epsilon=3.0, delta=1e-5)
room, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

def cramped(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

found, spent = {"spent": ""}, 0
cramped(40_000)
while not found["spent"]:
    try:
        ledger.spend(foreign(mu=1e-3, neighbors="add_remove"))
        spent += 1
    except InvalidInput as error:
        found["spent"] = str(error)
cramped(4096)
try:
    Ledger.create(folder / "new.ledger", epsilon=3.0, delta=1e-5)
except InvalidInput as error:
    found["made"] = str(error)
cramped(room)
entries = len(ledger.statement().entries)
print(json.dumps({**found, "acknowledged": spent, "entries": entries}))
"""


def test_an_archive_is_read(path: Path) -> None:
    """Whoever may not write beside the file (the superuser may) reads it all the same."""
    whole = Ledger(path).statement().to_dict()
    path.parent.chmod(0o555)
    try:
        assert Ledger(path).statement().to_dict() == whole
    finally:
        path.parent.chmod(0o755)


def test_a_later_format_is_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(path, "PRAGMA user_version = 2")
    with pytest.raises(InvalidInput, match="a ledger of format 2; this release reads 1"):
        Ledger(path).statement()
    assert verdict(["ledger", "show", str(path)], capsys) == 2


def test_damaged_pages_are_seen_or_do_no_harm(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, whole = Ledger(path).statement().to_dict(), path.read_bytes()
    refused = 0
    for place in range(0, len(whole) - 40, 251):
        path.write_bytes(whole[:place] + b"\xff" * 40 + whole[place + 40 :])
        try:
            # Nothing is stored in most of a page: what reads at all must read the same.
            assert Ledger(path).statement().to_dict() == before
        except (InvalidInput, LedgerBroken):
            refused += 1
            assert verdict(["ledger", "show", str(path)], capsys) in (1, 2)
    assert refused > 10
    for length in (0, 100, 4096, len(whole) - 1000):
        path.write_bytes(whole[:length])
        assert verdict(["ledger", "show", str(path)], capsys) in (1, 2)


def verdict(words: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command that must end with one line and no traceback, and return its exit code."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(words)
    said = capsys.readouterr().err
    assert said.startswith("dplateau: ")
    assert said.count("\n") == 1
    assert isinstance(stop.value.code, int)
    return stop.value.code
