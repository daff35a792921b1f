"""Real processes: killed at any moment they lose nothing, and together they never overspend.

Children are forked from one process that has loaded the library, so that two hundred of them start
in little time; it runs apart from the tests, and what it finds comes back as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dplateau import Ledger

PRELUDE = """
import json, os, random, signal, sys, time
from pathlib import Path
from dplateau import Ledger, NoisyGD, SpendRefused, certify
from dplateau.bounds.registry import bound_named

path = Path(sys.argv[1])
run = NoisyGD(n=100, steps=1, noise_multiplier=1000.0, release="all")
certificate = certify(run, 1e-5, bounds=[bound_named("gdp_composition")])
ledger = Ledger.create(path, epsilon=EPSILON, delta=1e-5, filter="gdp")
ledger.spend(certificate, name="warm")
"""

KILLED = (
    PRELUDE.replace("EPSILON", "3.0")
    + """
def spend_until_killed(out):
    for number in range(10**6):
        # Reserved before, settled after: what a fit does around its training.
        entry = ledger.reserve(certificate, name=f"{os.getpid()}-{number}")
        os.write(out, f"{entry}\\n".encode())
        ledger.settle(entry)

start = time.monotonic()
ledger.settle(ledger.reserve(certificate))
round_trip = time.monotonic() - start

random.seed(5)
acknowledged, moments = set(), 200
for moment in range(moments):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        spend_until_killed(writing)
    os.close(writing)
    # Let some get through, however slow the machine is, then strike anywhere in the next one.
    text = os.read(reading, 99) if random.random() < 0.7 else b""
    time.sleep(random.uniform(0.0, round_trip))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 9999):
        text += more
    os.close(reading)
    acknowledged |= {int(line) for line in text.split(b"\\n")[:-1]}
entries = {entry.number: entry for entry in ledger.statement().entries}
print(json.dumps({
    "moments": moments,
    "acknowledged": len(acknowledged),
    "lost": sorted(acknowledged - set(entries)),
    "entries": len(entries),
    "amounts": [entry.amount for entry in entries.values() if entry.amount is not None],
    "reserved": sum(entry.status == "reserved" for entry in entries.values()),
}))
"""
)

TOGETHER = (
    PRELUDE.replace("EPSILON", "0.03")
    + """
def spend_until_refused():
    for count in range(1000):
        try:
            ledger.spend(certificate)
        except SpendRefused:
            return count
    return -1

children = []
for _ in range(10):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(spend_until_refused()).encode())
        os._exit(0)
    os.close(writing)
    children.append((child, reading))
counts = []
for child, reading in children:
    os.waitpid(child, 0)
    counts.append(int(os.read(reading, 99)))
print(json.dumps(counts))
"""
)


FORKED = (
    PRELUDE.replace("EPSILON", "3.0")
    + """
import threading
from dplateau.ledger import book
from dplateau.ledger.book import Book

book._PATIENCE = 2.0
inside = threading.Event()

def add_slowly():
    with Book(path).adding() as (rows, append):
        inside.set()
        time.sleep(0.5)
        append("refused", {"name": "slow", "what": "nothing", "reason": "none"})

thread = threading.Thread(target=add_slowly)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    try:
        ledger.spend(certificate, name="child")
    except BaseException as error:
        print(error, file=sys.stderr, flush=True)
    os._exit(0)
thread.join()
ledger.spend(certificate, name="parent")
os.waitpid(child, 0)
print(json.dumps([entry.name for entry in ledger.statement().entries]))
"""
)


def outcome(script: str, path: Path) -> Any:
    """Run a script in a process of its own, with one thread, and return what it prints."""
    alone = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, **alone},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    found = outcome(KILLED, path)
    assert found["moments"] == 200
    assert found["acknowledged"] >= 100
    assert found["lost"] == []
    # What was written and not yet acknowledged counts too: at most one of each process.
    assert found["acknowledged"] <= found["entries"] - 2 <= found["acknowledged"] + 200
    assert found["reserved"] <= 200
    statement = Ledger(path).statement()
    assert statement.terms is not None
    spent = statement.terms.amount - sum(found["amounts"])
    assert statement.amount_left == pytest.approx(spent, rel=1e-9)


def test_ten_processes_at_once_never_exceed_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    counts = outcome(TOGETHER, path)
    statement = Ledger(path).statement()
    paid = [entry for entry in statement.entries if entry.status == "spent"]
    refused = [entry for entry in statement.entries if entry.status == "refused"]
    assert len(counts) == len(refused) == 10
    assert sum(counts) == len(paid) - 1
    assert min(counts) >= 0
    assert statement.terms is not None
    amounts = [entry.amount for entry in paid if entry.amount is not None]
    # All of it was spent, and nothing more.
    assert sum(amounts) <= statement.terms.amount < sum(amounts) + amounts[0]
    assert len(amounts) >= 50


def test_a_child_forked_while_a_thread_writes_can_spend(tmp_path: Path) -> None:
    # It would take over SQLite's notes of a lock that nobody in it can let go.
    names = outcome(FORKED, tmp_path / "survey.ledger")
    assert names[:2] == ["warm", "slow"]
    assert sorted(names[2:]) == ["child", "parent"]
