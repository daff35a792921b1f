"""Writing files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dplateau.errors import InvalidInput

# Papers, models and keys are smaller.
LARGEST = 1 << 28
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
    """Write to a temporary file beside ``path``, then rename: no reader ever sees half a file.

    A link stays a link, and its file is written. What is no file, such as ``/dev/null`` or a pipe,
    is written to and never replaced.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.is_dir():
        raise InvalidInput(f"cannot write {path}: it is a folder")
    if path.exists() and not path.is_file():
        _write_into(path, data)
        return
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")
    try:
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:64]}.")
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp files are private to their owner; give the usual permissions of a new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, place)
        note_written(path)
    except BaseException as error:
        # Ctrl-C too: what is private may be in it, and nobody would look for it.
        Path(name).unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None


def _write_into(path: Path, data: bytes) -> None:
    try:
        with path.open("wb") as file:
            file.write(data)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None


def refuse_file_as_folder(path: Path) -> None:
    """Refuse a file where a folder is to be written, before anything is computed."""
    if path.exists() and not path.is_dir():
        raise InvalidInput(f"cannot write to {path}: it is a file, and a folder is needed")
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise InvalidInput(f"cannot write to {path}: {there} takes no new files")


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, or refuse in one line; a device without an end is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    if len(content) > LARGEST:
        raise InvalidInput(f"cannot read {path}: it is larger than {LARGEST >> 20} MB")
    return content


def read_text(path: Path) -> str:
    """Return a text file's content, or refuse in one line."""
    try:
        # Some editors begin every text with a byte order mark.
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"cannot read {path}: it is not UTF-8 text") from None
