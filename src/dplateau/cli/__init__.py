"""The command line: ``dplateau account|compare|calibrate ...``."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from dplateau.cli.interrupts import interrupts_heard

# What a shell reports of a command that Ctrl-C ended.
_STOPPED = 130
# The end of the year 9999, in seconds since 1970.
_LAST_SECOND = 253402300799
# What fails when an answer is printed into a full disk or a dead device.
_UNPRINTABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input ends with exit code 2 and one line, never a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _write_any_name()
    with interrupts_heard():
        code = _exit_code(words)
    sys.exit(code)


def _exit_code(words: list[str]) -> int:
    try:
        _refuse_strange_dates()
        from dplateau.cli.commands import app
        from dplateau.ground.files import forget_written

        forget_written()
        code = app(args=words, prog_name="dplateau", standalone_mode=False)
        _print_what_is_left()
    except (KeyboardInterrupt, EOFError):
        return _interrupted()
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        return _exit_code_after(error)
    # Some versions of the parser turn an interruption into this exit code, and say nothing.
    return _interrupted() if code == _STOPPED else code if isinstance(code, int) else 0


def _refuse_strange_dates() -> None:
    """Refuse a ``SOURCE_DATE_EPOCH`` that is no date, of which NumPy makes a traceback."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not (re.fullmatch("[0-9]{1,12}", seconds) and int(seconds) <= _LAST_SECOND):
        from dplateau.errors import InvalidInput

        message = "SOURCE_DATE_EPOCH must be a whole number of seconds since 1970, up to the year"
        raise InvalidInput(f"{message} 9999; unset it, or set it to one")


def _write_any_name() -> None:
    """Let names that an output's encoding lacks be escaped: no command fails at its last line."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _print_what_is_left() -> None:
    """Print what waits in a buffer, while an output that fails can still be said in one line."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _exit_code_after(error: Exception) -> int:
    """Say what was wrong in one line and return 2; anything that is no refusal is a bug: raise.

    The parser's own exceptions are known by what they can do, not by their class, because Typer
    carries its parser along in some versions and imports it in others.
    """
    from dplateau.errors import DplateauError

    if type(error).__name__ == "NoArgsIsHelpError":
        return 0
    if type(error).__name__ == "Abort" or _hides_ctrl_c(error):
        return _interrupted()
    if isinstance(error, DplateauError):
        from dplateau.cli.language import in_options

        message = in_options(str(error))
    elif isinstance(error, OSError) and error.filename is not None:
        # A path that is no path (too long, a loop of links), or a disk that fails.
        message = f"cannot use {str(error.filename)[:200]}: {error.strerror}"
    elif isinstance(error, OSError) and error.errno in _UNPRINTABLE:
        _forget_output()
        message = f"cannot print the answer: {error.strerror}; {_left_behind()}"
    elif hasattr(error, "format_message"):
        path = getattr(getattr(error, "ctx", None), "command_path", "dplateau")
        # Typer's newer parser puts its own words before those of the check that failed.
        said = error.format_message().rstrip(".").replace("Value error, ", "")
        message = f"{said}{' See' if said.endswith('?') else '; see'} '{path} --help'"
    else:
        raise error
    from dplateau.ground.shown import printable

    sys.stderr.write(f"dplateau: {printable(' '.join(message.split()))}\n")
    return 2


def _hides_ctrl_c(error: BaseException | None) -> bool:
    """Return whether Ctrl-C is behind an error: compiled code and imports make it one of theirs."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _interrupted() -> int:
    """Say what an interrupted command left behind; a reservation in a ledger counts as spent."""
    sys.stderr.write(f"dplateau: interrupted; {_left_behind()}\n")
    return _STOPPED


def _left_behind() -> str:
    """Return which files are on disk by this command."""
    from dplateau.ground.files import written_so_far

    paths = ", ".join(written_so_far())
    return f"written before: {paths}" if paths else "nothing was written"


def _forget_output() -> None:
    """Drop what could not be printed: a second try at the end would show a traceback."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        output = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output)
        os.close(nowhere)
