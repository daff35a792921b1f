"""The command line: ``dplateau account|compare|calibrate ...``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input ends with exit code 2 and one line, never a traceback."""
    from dplateau.cli.commands import app

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=words, prog_name="dplateau", standalone_mode=False)
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("dplateau: interrupted; nothing was written\n")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        sys.exit(_exit_code_after(error))
    sys.exit(code if isinstance(code, int) else 0)


def _exit_code_after(error: Exception) -> int:
    """Say what was wrong in one line and return 2; anything that is no refusal is a bug: raise.

    The parser's own exceptions are known by what they can do, not by their class, because Typer
    carries its parser along in some versions and imports it in others.
    """
    from dplateau.errors import DplateauError

    if type(error).__name__ == "NoArgsIsHelpError":
        return 0
    if type(error).__name__ == "Abort":
        sys.stderr.write("dplateau: interrupted; nothing was written\n")
        return 130
    if isinstance(error, DplateauError):
        message = str(error)
    elif hasattr(error, "format_message"):
        path = getattr(getattr(error, "ctx", None), "command_path", "dplateau")
        message = f"{error.format_message().rstrip('.')}; see '{path} --help'"
    else:
        raise error
    sys.stderr.write(f"dplateau: {' '.join(message.split())}\n")
    return 2
