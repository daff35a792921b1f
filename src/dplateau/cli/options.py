"""The options that describe a run, written once and shared by every command that takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dplateau.errors import InvalidInput

# The library itself loads when a run is built, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Domain, LossGeometry, Release, Run


class Algorithm(StrEnum):
    """The algorithms, as named on the command line."""

    GD = "gd"
    SGD = "sgd"
    CYCLIC = "cyclic"
    ONE_PASS = "one-pass"
    LANGEVIN = "langevin"


@dataclass(frozen=True)
class Flag:
    """One option: its type, its help, its panel there, and the algorithms that take it."""

    kind: Any
    help: str
    panel: str
    algorithms: tuple[Algorithm, ...] = tuple(Algorithm)


CLAIM_PANEL = "The claim"
OUTPUT_PANEL = "Output"
_DATA, _LENGTH, _STEP, _LOSS, _NOISE = (
    "Data and batches",
    "Length",
    "Step",
    "Loss of one record",
    "Noise (state it once)",
)

_SAMPLED = (Algorithm.SGD, Algorithm.CYCLIC)
_NOISY = (Algorithm.GD, Algorithm.SGD, Algorithm.CYCLIC, Algorithm.ONE_PASS)
_LONG = (Algorithm.GD, Algorithm.SGD, Algorithm.CYCLIC, Algorithm.LANGEVIN)

FLAGS: dict[str, Flag] = {
    "n": Flag(int, "Number of records (public).", _DATA),
    "batch_size": Flag(
        float,
        "Records per batch; every step divides by it.",
        _DATA,
        (*_SAMPLED, Algorithm.ONE_PASS),
    ),
    "sampling_rate": Flag(float, "Batch size over n, instead of --batch-size.", _DATA, _SAMPLED),
    "sampling": Flag(str, "poisson (default) or fixed.", _DATA, (Algorithm.SGD,)),
    "order": Flag(str, "cyclic (default), shuffle-once, reshuffle.", _DATA, (Algorithm.CYCLIC,)),
    "steps": Flag(int, "Number of steps.", _LENGTH, _LONG),
    "epochs": Flag(
        float, "Passes over the data, instead of --steps.", _LENGTH, (Algorithm.GD, *_SAMPLED)
    ),
    "learning_rate": Flag(float, "Step size.", _STEP),
    "l2": Flag(float, "Strength of the ridge term.", _STEP),
    "diameter": Flag(float, "Diameter of the convex body iterates are projected onto.", _STEP),
    "radius": Flag(float, "Radius of a ball around 0, instead of --diameter.", _STEP),
    "dimension": Flag(int, "Number of parameters.", _STEP),
    "momentum": Flag(float, "Momentum, from 0 up to but not 1.", _STEP, _NOISY),
    "momentum_kind": Flag(str, "nesterov (default) or heavy-ball.", _STEP, _NOISY),
    "average_last": Flag(int, "Average that many last iterates.", _STEP, _NOISY),
    "lipschitz": Flag(float, "Bound on its gradient norm (the clip norm).", _LOSS),
    "smoothness": Flag(float, "Its smoothness (logistic on unit rows: 0.25).", _LOSS),
    "strong_convexity": Flag(float, "Its strong convexity, without the ridge.", _LOSS),
    "convex": Flag(bool, "Whether it is convex (it is unless said otherwise).", _LOSS),
    "saddle": Flag(bool, "Convex in some weights, concave in others (descent-ascent).", _LOSS),
    "holder_exponent": Flag(float, "Exponent p < 1 of Hölder-continuous gradients.", _LOSS),
    "holder_constant": Flag(float, "Constant of Hölder-continuous gradients.", _LOSS),
    "dissipativity_offset": Flag(float, "lambda of strong dissipativity.", _LOSS),
    "dissipativity_rate": Flag(float, "kappa of strong dissipativity.", _LOSS),
    "noise_multiplier": Flag(
        float, "Std on the summed gradients, in units of --lipschitz.", _NOISE, _NOISY
    ),
    "noise_std": Flag(float, "Std on the averaged gradient.", _NOISE, _NOISY),
    "iterate_std": Flag(float, "Std in parameter space.", _NOISE, _NOISY),
    "noise_kind": Flag(str, "gaussian (default) or laplace (one dimension).", _NOISE, _NOISY),
    "inverse_temperature": Flag(
        float, "Of the sampled density (default 1).", _NOISE, (Algorithm.LANGEVIN,)
    ),
    "neighbors": Flag(str, "add-remove (default) or replace.", CLAIM_PANEL),
    "max_records_per_person": Flag(
        int, "Most records of one person; the claim holds for all of them (1).", CLAIM_PANEL
    ),
    "release": Flag(
        str,
        "What leaves: last, all, random-stop or checkpoints. A promise: no default.",
        CLAIM_PANEL,
    ),
    "every": Flag(int, "Checkpoints: one every so many steps.", CLAIM_PANEL),
    "at": Flag(str, "Checkpoints: after these steps, such as 100,200,500.", CLAIM_PANEL),
    "last_iterates": Flag(int, "Checkpoints: so many last iterates.", CLAIM_PANEL),
}
_WORDS = ("sampling", "order", "momentum_kind", "noise_kind", "neighbors", "release")


def takes_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run, and call it with the run as its first argument."""
    return _with_run_options(command, Annotated[Algorithm, typer.Argument()], build_run)


def takes_run_or_file(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same, but let the path of a file stand in place of algorithm and options."""
    what = "A certificate, as JSON, or an algorithm (gd, sgd, cyclic, one-pass, langevin)."
    return _with_run_options(
        command, Annotated[str, typer.Argument(help=what, show_default=False)], _run_or_path
    )


def _run_or_path(word: str, stated: dict[str, Any]) -> Run | Path:
    if word in set(Algorithm):
        return build_run(Algorithm(word), stated)
    given = [name for name, value in stated.items() if value is not None]
    if given:
        raise InvalidInput(
            f"{word!r} is no algorithm, and the certificate in a file takes no "
            f"{_names(given[0], FLAGS[given[0]])}; algorithms are {', '.join(Algorithm)}"
        )
    return Path(word)


def _with_run_options(
    command: Callable[..., None], first: Any, build: Callable[[Any, dict[str, Any]], Any]
) -> Callable[..., None]:
    """Call the command with what ``build`` makes of the first word and the options of a run."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "run"]
    hints = get_type_hints(command, localns={"Run": Any}, include_extras=True)
    word = _parameter("algorithm", first, inspect.Parameter.empty)
    flags = [_parameter(name, _option(name, flag), None) for name, flag in FLAGS.items()]
    mine = [_parameter(p.name, hints[p.name], p.default) for p in own]

    @wraps(command)
    def called(**values: Any) -> None:
        stated = {name: values.pop(name) for name in FLAGS}
        run = build(values.pop("algorithm"), stated)
        command(run, **values)

    called.__dict__["__signature__"] = inspect.Signature([word, *flags, *mine])
    called.__annotations__ = {p.name: p.annotation for p in (word, *flags, *mine)}
    return called


def _option(name: str, flag: Flag) -> Any:
    declared = typer.Option(_names(name, flag), help=flag.help, rich_help_panel=flag.panel)
    return Annotated[flag.kind | None, declared]


def _names(name: str, flag: Flag) -> str:
    dashed = f"--{name.replace('_', '-')}"
    return f"{dashed}/--no{dashed[1:]}" if flag.kind is bool else dashed


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def build_run(algorithm: Algorithm, stated: dict[str, Any]) -> Run:
    """Return the run that the options describe."""
    given = {name: value for name, value in stated.items() if value is not None}
    for name in given:
        allowed = FLAGS[name].algorithms
        if algorithm not in allowed:
            raise InvalidInput(
                f"{algorithm} takes no {_names(name, FLAGS[name])}; it is for {', '.join(allowed)}"
            )
    if "n" not in given and algorithm is not Algorithm.LANGEVIN:
        raise InvalidInput(f"{algorithm} needs --n, the number of records")
    if algorithm is Algorithm.LANGEVIN and "steps" not in given:
        raise InvalidInput("langevin needs --steps")
    for name in _WORDS:
        if name in given:
            given[name] = given[name].replace("-", "_")
    if "release" in given:
        given["release"] = _release(given)
    inner = (*_LOSS_FLAGS, *_CHECKPOINT_FLAGS, "diameter", "radius")
    arguments = {name: value for name, value in given.items() if name not in inner}
    arguments |= {"loss": _loss(given), "domain": _domain(given)}
    if "max_records_per_person" in arguments:
        arguments["group_size"] = arguments.pop("max_records_per_person")
    return _describing(algorithm)(**arguments)


def _release(given: dict[str, Any]) -> Release | str:
    from dplateau.algorithms import Checkpoints

    stated = {name: given[name] for name in _CHECKPOINT_FLAGS if name in given}
    if given["release"] != Checkpoints.name:
        for name in stated:
            raise InvalidInput(f"{_names(name, FLAGS[name])} goes with --release checkpoints")
        return str(given["release"])
    if not stated:
        raise InvalidInput(
            "which checkpoints? add --every 100, --at 100,200,500 or --last-iterates 10"
        )
    if "at" in stated:
        stated["at"] = [_step(word) for word in stated["at"].split(",")]
    if "last_iterates" in stated:
        stated["last"] = stated.pop("last_iterates")
    return Checkpoints(**stated)


def _step(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise InvalidInput(f"--at takes steps separated by commas; got {word!r}") from None


def _describing(algorithm: Algorithm) -> Callable[..., Run]:
    from dplateau import algorithms

    named: dict[Algorithm, Callable[..., Run]] = {
        Algorithm.GD: algorithms.NoisyGD,
        Algorithm.SGD: algorithms.NoisySGD,
        Algorithm.CYCLIC: algorithms.CyclicSGD,
        Algorithm.ONE_PASS: algorithms.OnePassSGD,
        Algorithm.LANGEVIN: algorithms.ProjectedLangevin,
    }
    return named[algorithm]


_CHECKPOINT_FLAGS = ("every", "at", "last_iterates")
_LOSS_FLAGS = (
    "lipschitz",
    "smoothness",
    "strong_convexity",
    "convex",
    "saddle",
    "holder_exponent",
    "holder_constant",
    "dissipativity_offset",
    "dissipativity_rate",
)


def _loss(given: dict[str, Any]) -> LossGeometry | None:
    from dplateau.algorithms import LossGeometry

    stated = {name: given[name] for name in _LOSS_FLAGS if name in given}
    if not stated:
        return None
    stated.setdefault("convex", not stated.get("saddle", False))
    stated.setdefault("lipschitz", float("inf"))
    for name, parts in {
        "holder": ("holder_exponent", "holder_constant"),
        "dissipativity": ("dissipativity_offset", "dissipativity_rate"),
    }.items():
        found = [stated.pop(part) for part in parts if part in stated]
        if len(found) == 1:
            raise InvalidInput(
                f"--{parts[0].replace('_', '-')} and --{parts[1].replace('_', '-')} go together"
            )
        if found:
            stated[name] = tuple(found)
    return LossGeometry(**stated)


def _domain(given: dict[str, Any]) -> Domain | None:
    from dplateau.algorithms import Ball, Body

    if "diameter" in given and "radius" in given:
        raise InvalidInput("state the domain once: --diameter or --radius")
    if "radius" in given:
        return Ball(given["radius"])
    return Body(given["diameter"]) if "diameter" in given else None
