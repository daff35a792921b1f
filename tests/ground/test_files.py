"""Files are written whole or not at all; what is no file is neither replaced nor read for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dplateau.errors import InvalidInput
from dplateau.ground import files
from dplateau.ground.files import read_bytes, write_whole


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    write_whole(link, "one")
    assert link.is_symlink()
    assert target.read_text() == "one"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """Renamed over, /dev/null would be a file from then on, for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", f"print(open({str(pipe)!r}).read(), end='')"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        write_whole(pipe, "one")
        said, _ = reader.communicate()
    assert (said, pipe.is_fifo(), len(list(tmp_path.iterdir()))) == ("one", True, 1)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it is a folder"):
        write_whole(tmp_path, "one")


def test_a_device_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    with pytest.raises(InvalidInput, match="cannot read /dev/zero: it is larger than 1 MB"):
        read_bytes(Path("/dev/zero"))
