"""In a real kernel: results are pages, long calls show a bar, and nothing of it stays on file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

SOON = "import dplateau.ground.progress as bars; bars.SECONDS_BEFORE = bars.SECONDS_BETWEEN = 0.02"
CALL = """
from dplateau import Ball, LossGeometry, Potential, sample
bowl = Potential(lambda x: 2 * x, LossGeometry(lipschitz=2.0, convex=True, smoothness=2.0))
sample(bowl, Ball(1.0), 40_000, learning_rate=0.05, dimension=2, warmup=1000, seed=0);
"""
RUN = """
from dplateau import LossGeometry, NoisyGD, certify, compare
run = NoisyGD(n=50, steps=100, learning_rate=0.5, l2=0.1, noise_multiplier=9.0, release="last",
              loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5))
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def messages(client: Any, code: str) -> list[tuple[str, dict[str, Any]]]:
    """Run code in the kernel and return what it published of its own."""
    published: list[tuple[str, dict[str, Any]]] = []
    reply = client.execute_interactive(
        code,
        output_hook=lambda message: published.append((message["msg_type"], message["content"])),
    )
    assert reply["content"]["status"] == "ok", published
    return [found for found in published if found[0] not in ("status", "execute_input")]


def test_a_long_call_shows_its_steps_and_takes_them_away(client: Any) -> None:
    messages(client, f"{SOON}\nimport dplateau; dplateau.progress(True)")
    published = messages(client, CALL)
    assert {kind for kind, _ in published} == {"display_data", "update_display_data"}
    bars: dict[str, list[str]] = {}
    for _, content in published:
        pages = bars.setdefault(content["transient"]["display_id"], [])
        pages.append(content["data"]["text/html"])
    # What is certified before the first step may have a bar of its own.
    assert all(pages[-1] == "" for pages in bars.values())
    (pages,) = (pages for pages in bars.values() if "steps <progress" in pages[0])
    counts = [int(found[1]) for page in pages if (found := re.search(r'value="(\d+)"', page))]
    assert counts == sorted(counts)
    assert 0 < counts[-1] <= 41_000
    assert all("steps <progress" in page and "of 41,000" in page for page in pages[:-1])


def test_the_switch_silences_it(client: Any) -> None:
    messages(client, f"{SOON}\nimport dplateau; dplateau.progress(False)")
    assert messages(client, CALL) == []


def test_results_are_pages(client: Any) -> None:
    messages(client, "import dplateau; dplateau.progress(False)")
    for call in ("certify(run, 1e-5)", "compare(run, 1e-5)"):
        (_, content), *rest = messages(client, RUN + call)
        assert rest == []
        assert "2.8617" in content["data"]["text/html"]
        assert content["data"]["text/plain"].startswith("<C")


def test_a_saved_notebook_keeps_nothing_of_a_bar() -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(SOON), nbformat.v4.new_code_cell(CALL)]
    )
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert "progress>" not in nbformat.writes(notebook).partition('"cells"')[2].replace(SOON, "")
    assert notebook.cells[1].outputs
    assert all(shown.data["text/html"] == "" for shown in notebook.cells[1].outputs)
