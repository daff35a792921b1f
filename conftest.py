"""Doctests of a bridge need the package on its other side; they run in suites/bridges."""

collect_ignore = ["src/dplateau/opacus.py"]
