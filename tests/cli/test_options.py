"""Options carry the names of the fields they fill, and help is quick and readable."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dplateau import Ball, Body, Checkpoints, LossGeometry, NoisyGD, NoisySGD
from dplateau.algorithms import Run, runs
from dplateau.cli.options import FLAGS, Algorithm, build_run
from dplateau.errors import InvalidInput

CLASSES: dict[Algorithm, Callable[..., Run]] = {
    Algorithm.GD: runs.NoisyGD,
    Algorithm.SGD: runs.NoisySGD,
    Algorithm.CYCLIC: runs.CyclicSGD,
    Algorithm.ONE_PASS: runs.OnePassSGD,
    Algorithm.LANGEVIN: runs.ProjectedLangevin,
}
LOSS = ("lipschitz", "smoothness", "strong_convexity", "convex", "saddle")
PAIRS = ("holder_exponent", "holder_constant", "dissipativity_offset", "dissipativity_rate")
CHECKPOINTS = {"every": "every", "at": "at", "last_iterates": "last"}
DOMAIN = ("diameter", "radius")


def help_of(*words: str, columns: int = 100) -> str:
    command = [sys.executable, "-W", "error", "-m", "dplateau", *words, "--help"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_every_field_has_its_option_and_every_option_its_field(algorithm: Algorithm) -> None:
    fields = set(inspect.signature(CLASSES[algorithm]).parameters) - {"loss", "domain"}
    if algorithm is Algorithm.LANGEVIN:  # its noise follows from the step size
        fields -= {"noise_multiplier", "noise_std", "iterate_std", "noise_kind"}
        fields -= {"momentum", "momentum_kind", "average_last"}
    # People think of persons; to a run they are groups of records.
    fields = fields - {"group_size"} | {"max_records_per_person"}
    offered = {name for name, flag in FLAGS.items() if algorithm in flag.algorithms}
    inner = {*LOSS, *PAIRS, *DOMAIN, *CHECKPOINTS}
    assert offered - inner == fields
    assert offered >= inner


def test_checkpoint_options_are_the_fields_of_checkpoints() -> None:
    assert set(CHECKPOINTS.values()) == set(inspect.signature(Checkpoints).parameters)


def test_loss_options_are_the_fields_of_a_loss() -> None:
    fields = set(inspect.signature(LossGeometry).parameters)
    assert set(LOSS) | {"holder", "dissipativity"} == fields


@pytest.mark.parametrize("command", ["account", "compare", "calibrate"])
def test_help_names_every_option_in_panels_and_ends_with_an_example(command: str) -> None:
    shown = help_of(command, columns=120)
    for name in FLAGS:
        assert re.search(rf"--{name.replace('_', '-')}\b", shown), name
    for panel in {flag.panel for flag in FLAGS.values()}:
        assert f" {panel} " in shown
    for option in ("--delta", "--json"):
        assert option in shown
    assert f"Example: dplateau {command} sgd" in " ".join(shown.split())


def test_the_bare_command_shows_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dplateau"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    for command in ("account", "compare", "calibrate"):
        assert command in done.stdout
    assert done.stderr == ""


def test_help_needs_neither_numpy_nor_scipy() -> None:
    code = (
        "import sys; from dplateau.cli import main\n"
        "try: main(['account', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'numba', 'dp_accounting', 'matplotlib', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --- from options to runs ----------------------------------------------------------------------


def built(algorithm: Algorithm, **stated: Any) -> Run:
    return build_run(algorithm, {name: stated.get(name) for name in FLAGS})


def test_dashes_and_underscores_mean_the_same() -> None:
    base = {"n": 10, "batch_size": 2.0, "steps": 2, "noise_std": 1.0}
    for relation in ("add-remove", "add_remove"):
        run = built(Algorithm.SGD, **base, neighbors=relation, release="last")
        assert run.neighbors == "add_remove"
    for order in ("shuffle-once", "shuffle_once"):
        assert built(Algorithm.CYCLIC, **base, order=order, release="last") == runs.CyclicSGD(
            n=10, batch_size=2, steps=2, noise_std=1.0, order="shuffle_once", release="last"
        )


def test_losses_and_domains_are_put_together() -> None:
    base = {"n": 10, "steps": 2, "noise_std": 1.0, "release": "last"}
    run = built(Algorithm.GD, **base, lipschitz=2.0, radius=1.5)
    assert run == NoisyGD(
        **base, loss=LossGeometry(lipschitz=2.0, convex=True), domain=Ball(radius=1.5)
    )
    rough = built(
        Algorithm.GD,
        **base,
        diameter=3.0,
        convex=False,
        holder_exponent=0.5,
        holder_constant=2.0,
        dissipativity_offset=0.1,
        dissipativity_rate=0.2,
    )
    assert rough.domain == Body(3.0)
    assert rough.loss == LossGeometry(
        lipschitz=float("inf"), convex=False, holder=(0.5, 2.0), dissipativity=(0.1, 0.2)
    )
    assert built(Algorithm.GD, **base).loss is None


def test_unstated_options_keep_the_library_defaults() -> None:
    run = built(Algorithm.SGD, n=10, batch_size=2.0, steps=2, noise_std=1.0, release="all")
    assert run == NoisySGD(n=10, batch_size=2, steps=2, noise_std=1.0, release="all")


@pytest.mark.parametrize(
    ("algorithm", "stated", "message"),
    [
        (Algorithm.GD, {"n": 3, "batch_size": 2.0}, "gd takes no --batch-size; it is for sgd, cyc"),
        (Algorithm.SGD, {"n": 3, "order": "cyclic"}, "sgd takes no --order; it is for cyclic"),
        (Algorithm.ONE_PASS, {"n": 3, "steps": 2}, "one-pass takes no --steps"),
        (Algorithm.LANGEVIN, {"n": 3, "noise_std": 1.0}, "langevin takes no --noise-std"),
        (Algorithm.SGD, {"steps": 2}, "sgd needs --n, the number of records"),
        (Algorithm.LANGEVIN, {"n": 3}, "langevin needs --steps"),
        (Algorithm.GD, {"n": 3, "diameter": 1.0, "radius": 1.0}, "domain once: --diameter or --ra"),
        (Algorithm.GD, {"n": 3, "holder_exponent": 0.5}, "--holder-exponent and --holder-constant"),
        (Algorithm.GD, {"n": 3, "dissipativity_rate": 0.5}, "--dissipativity-rate go together"),
    ],
)
def test_refused_options(algorithm: Algorithm, stated: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        built(algorithm, **stated)


GD: dict[str, Any] = {"n": 10, "steps": 100, "noise_multiplier": 3.0}


@pytest.mark.parametrize(
    ("stated", "release"),
    [
        ({"every": 10}, Checkpoints(every=10)),
        ({"at": "5,20,90"}, Checkpoints(at=[5, 20, 90])),
        ({"last_iterates": 4}, Checkpoints(last=4)),
    ],
)
def test_checkpoints_are_stated_by_options(stated: dict[str, Any], release: Checkpoints) -> None:
    run = build_run(Algorithm.GD, {**GD, "release": "checkpoints", **stated})
    assert run.release == release


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"release": "checkpoints"}, r"which checkpoints\? add --every 100, --at 100,200,500 or"),
        ({"release": "last", "every": 4}, "--every goes with --release checkpoints"),
        ({"release": "checkpoints", "at": "5,x"}, "--at takes steps separated by commas; got 'x'"),
        ({"release": "checkpoints", "at": "5,200"}, "a checkpoint at step 200 of a run of 100"),
        ({"release": "checkpoints", "at": "5", "every": 2}, "got --every and --at"),
    ],
)
def test_checkpoints_that_are_not_stated_once_are_refused(
    stated: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInput, match=text):
        build_run(Algorithm.GD, {**GD, **stated})
