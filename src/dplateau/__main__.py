"""``python -m dplateau``: the same as the command ``dplateau``."""

from dplateau.cli import main

main()
