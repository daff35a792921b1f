"""What every test shares: how hypothesis searches, and how many tests a full run must find."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Tests run side by side already, and threads of linear algebra that wait for each other cost more
# than they bring. Set before NumPy is loaded, and inherited by every process that a test starts.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# A full run that finds fewer tests than this has lost some of them: a file that is no longer
# collected passes silently otherwise. Raise the number as the suite grows.
FEWEST_TESTS = 4000

# The first example may wait for a loop to be compiled, so no example has a time limit.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("local", _COMMON, max_examples=60)
settings.register_profile("ci", _COMMON, max_examples=60, derandomize=True, print_blob=True)
settings.register_profile("thorough", _COMMON, max_examples=1000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "local")
)


class CountTests:
    """Counts the tests that ran, wherever they ran, and fails a full run that has too few."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.found.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and len(self.found) < FEWEST_TESTS:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.found) < FEWEST_TESTS:
            terminalreporter.write_line(
                f"a full run must find at least {FEWEST_TESTS} tests; "
                f"this one found {len(self.found)}",
                red=True,
            )


def runs_everything(config: pytest.Config) -> bool:
    """Return whether this is a run of the whole suite, nothing named and nothing left out."""
    narrowing = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise")
    return (
        config.args_source == pytest.Config.ArgsSource.TESTPATHS
        and not any(config.getoption(name, default=None) for name in narrowing)
        and not config.getoption("collectonly")
    )


def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that gathers the reports, never in its workers."""
    if not hasattr(config, "workerinput") and runs_everything(config):
        config.pluginmanager.register(CountTests(), "count-tests")
