"""The command line as tests call it: as a process, or in this one, which saves loading everything.

Both answer with exit code, output and errors. Each command runs as a process somewhere in the
tests; whatever does not depend on the process itself is asked here.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

from dplateau.cli import main

Done = subprocess.CompletedProcess[str]


def process(*words: str, folder: Path | None = None) -> Done:
    """Run the command as a user does, with every warning an error."""
    command = [sys.executable, "-W", "error", "-m", "dplateau", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def here(*words: str, folder: Path | None = None) -> Done:
    """Run the command in this process."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(folder or Path.cwd()),
    ):
        try:
            main(words)
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Done(words, code, output.getvalue(), errors.getvalue())
