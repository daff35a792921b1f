"""How soon the explorer answers: claim, preview and whole curve, over HTTP from a real server.

    python benchmarks/explore.py            needs the extra explore

A claim should stand on the page within half a second of a move. Each setting is asked once to warm
up, then several times with slightly different noise, so that nothing is remembered; the table has
medians in seconds. "one move after another" drops each question after its claim, as a slider does.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

from dplateau.explore import Explorer

SETTINGS = {
    "Poisson, ridge": "",
    "Poisson, ridge, replaced": "neighbors=replace",
    "Poisson, checkpoints": "release=checkpoints",
    "Poisson, all released": "release=all",
    "Poisson, domain": "l2=0&diameter=2",
    "Poisson, hinge on a domain": "l2=0&diameter=2&loss=hinge",
    "full batch": "batches=full&epochs=1000&noise_multiplier=50",
    "in order": "batches=cyclic",
    "shuffled every epoch": "batches=reshuffle",
    "one size, replaced": "batches=fixed&neighbors=replace",
}
REPEATS = 5
MOVES = 20


def messages(address: str, name: str, query: str) -> Iterator[tuple[str, float]]:
    """Yield the kind of every message with the seconds since the question."""
    start = time.perf_counter()
    with urlopen(f"{address}{name}?{query}") as answer:
        for line in answer:
            if line.strip():
                yield json.loads(line)["kind"], time.perf_counter() - start


def first(address: str, name: str, query: str, kind: str) -> float:
    """Return when the first message of a kind came; the rest is not waited for."""
    return next(seconds for found, seconds in messages(address, name, query) if found == kind)


def both(address: str, query: str) -> tuple[float, float]:
    """Return when claim and preview came, asked at once as the page does."""
    with ThreadPoolExecutor(2) as threads:
        claim = threads.submit(first, address, "claim", query, "claim")
        preview = threads.submit(first, address, "curves", query, "preview")
        return claim.result(), preview.result()


def lines_done(address: str, query: str) -> float:
    """Return when the last bound was drawn in full (the lower bound may still be coming)."""
    done = 0.0
    for kind, seconds in messages(address, "curves", query):
        if kind == "lower" or kind == "lower_done":
            break
        done = seconds
    return done


def main() -> None:
    explorer = Explorer.open()
    address = explorer.address
    explorer.socket.close()
    command = [sys.executable, "-m", "dplateau", "explore", "--no-browser", "--address", address]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urlopen(f"{address}setup").close()
                break
            except OSError:
                time.sleep(0.1)
        both(address, "")
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")
        print(f"{'setting':30} {'claim':>7} {'preview':>8} {'all bounds':>11}")
        for title, query in SETTINGS.items():
            asked = [f"{query}&noise_multiplier={_noise(query, i)}" for i in range(REPEATS + 1)]
            times = [both(address, one) for one in asked[1:]]
            claim, preview = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"{title:30} {claim:7.2f} {preview:8.2f} {lines_done(address, asked[0]):11.2f}")
        start = time.perf_counter()
        for i in range(MOVES):
            both(address, f"noise_multiplier={1 + i / 50:.2f}")
        each = (time.perf_counter() - start) / MOVES
        print(f"one move after another: {each:.2f} s each, claim and preview")
    finally:
        server.terminate()
        server.wait()


def _noise(query: str, turn: int) -> str:
    return f"{(50 if 'full' in query else 1) * (1 + turn / 100):g}"


if __name__ == "__main__":
    main()
