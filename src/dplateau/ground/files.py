"""Writing files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dplateau.errors import InvalidInput

# What this process has changed on disk: whoever is interrupted is told.
_written: list[str] = []


def note_written(path: Path) -> None:
    """Remember that a file was written, for :func:`written_so_far`."""
    _written.append(str(path))


def forget_written() -> None:
    """Begin anew to remember what is written."""
    _written.clear()


def written_so_far() -> tuple[str, ...]:
    """Return the files that this process wrote, each once, in the order of writing."""
    return tuple(dict.fromkeys(_written))


def write_whole(path: Path, content: str | bytes) -> None:
    """Write to a temporary file beside ``path``, then rename: no reader ever sees half a file."""
    data = content.encode() if isinstance(content, str) else content
    if not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp files are private to their owner; give the usual permissions of a new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
        note_written(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None


def refuse_file_as_folder(path: Path) -> None:
    """Refuse a file where a folder is to be written, before anything is computed."""
    if path.exists() and not path.is_dir():
        raise InvalidInput(f"cannot write to {path}: it is a file, and a folder is needed")


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, or refuse in one line."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None


def read_text(path: Path) -> str:
    """Return a text file's content, or refuse in one line."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"cannot read {path}: it is not UTF-8 text") from None
