"""A real explorer in a process of its own, and Debian's Chromium in front of it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

# A fresh, quiet browser that may run as root and asks no host of its maker for anything.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60_000  # milliseconds: machines may be slow, and no test is about time


@dataclass
class Server:
    """`dplateau explore` at one address, which can be killed and started again."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def start(self) -> None:
        command = (sys.executable, "-m", "dplateau", "explore", "--no-browser")
        self.process = subprocess.Popen(
            [*command, "--address", self.address],
            env={**os.environ, "EXPLORER_MARK": self.mark, "OPENBLAS_NUM_THREADS": "1"},
        )
        for _ in range(600):
            try:
                urlopen(f"{self.address}setup").close()
                return
            except URLError:
                assert self.process.poll() is None, "the server has ended"
                time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def kill(self, how: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(30)


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    found = Server(free_port())
    found.start()
    yield found
    found.kill(signal.SIGINT)


@pytest.fixture
def own_server() -> Iterator[Server]:
    found = Server(free_port())
    found.start()
    yield found
    found.kill()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    place = shutil.which("chromium")
    assert place, "these tests need Debian's chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=place, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong unseen, and that may ask nobody else."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    found = context.new_page()
    found.set_default_timeout(PATIENCE)
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on(
        "request",
        lambda request: (
            None if request.url.startswith("http://127.0.0.1:") else problems.append(request.url)
        ),
    )
    yield found
    context.close()
    assert problems == []
