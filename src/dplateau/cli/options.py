"""The options that commands share: those that describe a run, and what is written where."""

from __future__ import annotations

import inspect
import json as json_text
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dplateau.errors import InvalidInput
from dplateau.ground.shown import printable, wrapped_lines

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


def whole_number(text: str) -> int:
    """Read a whole number as people write it.

    >>> whole_number("60_000"), whole_number("6e4"), whole_number("60000")
    (60000, 60000, 60000)
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS:
        raise typer.BadParameter(f"{text!r} is not a whole number")
    if number != number.to_integral_value():
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(number)


def real_number(text: str) -> float:
    """Read a number as people write it.

    >>> real_number("60_000"), real_number("1e-5")
    (60000.0, 1e-05)
    """
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


_MOST_DIGITS = 1000


def whole_option(*names: str, help: str, panel: str | None = None) -> Any:
    """Declare an option that takes a whole number."""
    return typer.Option(
        *names, help=help, rich_help_panel=panel, parser=whole_number, metavar="INTEGER"
    )


def real_option(*names: str, help: str, panel: str | None = None) -> Any:
    """Declare an option that takes a number."""
    return typer.Option(
        *names, help=help, rich_help_panel=panel, parser=real_number, metavar="NUMBER"
    )


def output_option(*names: str, help: str) -> Any:
    """Declare an option that says what is printed, or written where."""
    return typer.Option(*names, help=help, rich_help_panel=OUTPUT_PANEL)


_SAMPLED = (Algorithm.SGD, Algorithm.CYCLIC)
_BATCHED = (*_SAMPLED, Algorithm.ONE_PASS)
_NOISY = (Algorithm.GD, *_BATCHED)
_LONG = (Algorithm.GD, *_SAMPLED, Algorithm.LANGEVIN)


def _of(algorithms: tuple[Algorithm, ...], title: str) -> str:
    return f"{title} ({', '.join(algorithms)})"


NEEDED_PANEL = "Required"
CLAIM_PANEL = "The claim"
OUTPUT_PANEL = "Output"
_BATCHES = _of(_BATCHED, "Batches")
_SGD, _CYCLIC, _LANGEVIN = "Only sgd", "Only cyclic", "Only langevin"
_LENGTH = _of(_LONG, "Length, stated once")
_NOISE = _of(_NOISY, "Noise, stated once")
_STEP = "Step and domain"
_MOMENTUM = _of(_NOISY, "Momentum and averages")
_LOSS = "Loss of one record"
_SHAPE = "Its shape"
_CHECKPOINTS = "With --release checkpoints, one of"

FLAGS: dict[str, Flag] = {
    "n": Flag(int, "Number of records, which is public (required but for langevin).", NEEDED_PANEL),
    "release": Flag(
        str,
        "What leaves: last, all, random-stop or checkpoints (required: a promise).",
        NEEDED_PANEL,
    ),
    "batch_size": Flag(float, "Records per batch; every step divides by it.", _BATCHES, _BATCHED),
    "sampling_rate": Flag(
        float, "Batch size over n, instead of --batch-size (sgd, cyclic).", _BATCHES, _SAMPLED
    ),
    "sampling": Flag(str, "Batches: poisson (default) or fixed.", _SGD, (Algorithm.SGD,)),
    "order": Flag(str, "cyclic (default), shuffle-once, reshuffle.", _CYCLIC, (Algorithm.CYCLIC,)),
    "inverse_temperature": Flag(
        float, "Of the sampled density (default 1).", _LANGEVIN, (Algorithm.LANGEVIN,)
    ),
    "steps": Flag(int, "Number of steps.", _LENGTH, _LONG),
    "epochs": Flag(
        float,
        "Passes over the data, instead of --steps (not langevin).",
        _LENGTH,
        (Algorithm.GD, *_SAMPLED),
    ),
    "noise_multiplier": Flag(
        float, "Std on the summed gradients, in units of --lipschitz.", _NOISE, _NOISY
    ),
    "noise_std": Flag(float, "Std on the averaged gradient.", _NOISE, _NOISY),
    "iterate_std": Flag(float, "Std in parameter space.", _NOISE, _NOISY),
    "noise_kind": Flag(str, "gaussian (default) or laplace (one dimension).", _NOISE, _NOISY),
    "learning_rate": Flag(float, "Step size.", _STEP),
    "l2": Flag(float, "Strength of the ridge term.", _STEP),
    "diameter": Flag(float, "Diameter of the convex body iterates are projected onto.", _STEP),
    "radius": Flag(float, "Radius of a ball around 0, instead of --diameter.", _STEP),
    "dimension": Flag(int, "Number of parameters.", _STEP),
    "momentum": Flag(float, "Momentum, from 0 up to but not 1.", _MOMENTUM, _NOISY),
    "momentum_kind": Flag(str, "nesterov (default) or heavy-ball.", _MOMENTUM, _NOISY),
    "average_last": Flag(int, "Average that many last iterates.", _MOMENTUM, _NOISY),
    "lipschitz": Flag(float, "Bound on its gradient norm (the clip norm).", _LOSS),
    "smoothness": Flag(float, "Its smoothness (logistic on unit rows: 0.25).", _LOSS),
    "strong_convexity": Flag(float, "Its strong convexity, without the ridge.", _LOSS),
    "convex": Flag(bool, "Whether it is convex (it is unless said otherwise).", _SHAPE),
    "saddle": Flag(bool, "Convex in some weights, concave in others (descent-ascent).", _SHAPE),
    "holder_exponent": Flag(float, "Exponent p < 1 of Hölder-continuous gradients.", _LOSS),
    "holder_constant": Flag(float, "Constant of Hölder-continuous gradients.", _LOSS),
    "dissipativity_offset": Flag(float, "lambda of strong dissipativity.", _LOSS),
    "dissipativity_rate": Flag(float, "kappa of strong dissipativity.", _LOSS),
    "every": Flag(int, "One every so many steps.", _CHECKPOINTS),
    "at": Flag(str, "After these steps, such as 100,200,500.", _CHECKPOINTS),
    "last_iterates": Flag(int, "So many last iterates.", _CHECKPOINTS),
    "neighbors": Flag(str, "add-remove (default) or replace.", CLAIM_PANEL),
    "max_records_per_person": Flag(
        int, "Most records of one person; the claim holds for all of them (1).", CLAIM_PANEL
    ),
}
# What several commands take beside a run.
Delta = Annotated[float, real_option("--delta", help="Failure probability.", panel=NEEDED_PANEL)]
Epsilon = Annotated[
    float, real_option("--epsilon", help="The epsilon to meet.", panel=NEEDED_PANEL)
]
Neighbors = Annotated[str, typer.Option(help="add-remove or replace.", rich_help_panel=CLAIM_PANEL)]
RecordsPerPerson = Annotated[
    int,
    whole_option("--max-records-per-person", help="Most records of one person.", panel=CLAIM_PANEL),
]
Json = Annotated[bool, output_option("--json", help="Print JSON, not text.")]
Certified = Annotated[
    Path | None, output_option("-o", "--output", help="Write the certificate here.")
]
Picture = Annotated[
    Path | None, output_option("-o", "--output", help="Draw here: .png, .svg or .pdf.")
]
Csv = Annotated[Path | None, output_option("--csv", help="Write the numbers here.")]


def print_json(data: Any) -> None:
    """Print JSON-ready data."""
    typer.echo(json_text.dumps(data, indent=2, allow_nan=False))


def print_text(text: str) -> None:
    """Print a text of several lines in the width of a terminal."""
    tell("\n".join(wrapped_lines(text)))


def tell(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text that may come from a file: nothing in it reaches the terminal as a command."""
    typer.echo(printable(text), err=err, nl=nl)


def tell_written(what: str, *paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            typer.echo(f"{what} written to {path}")


def check_outputs(picture: Path | None, *others: Path | None) -> None:
    """Refuse what could not be drawn or written, before anything is computed."""
    from dplateau.plots.canvas import checked_suffix, require_matplotlib

    if picture is not None:
        checked_suffix(picture)
        require_matplotlib()
        if picture in others:
            raise InvalidInput(f"picture and numbers cannot both go to {picture}")
    for path in (picture, *others):
        if path is not None and not path.parent.is_dir():
            raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")


NOISES = ("noise_multiplier", "noise_std", "iterate_std")
# What calibrate varies while the noise stays as stated.
_AT_STATED_NOISE = ("l2", "steps", "learning-rate", "learning_rate", "batch-size", "batch_size")
_What = Annotated[
    Algorithm,
    typer.Argument(
        help="What runs: gd (full batches), sgd (random batches), cyclic (batches in order), "
        "one-pass, or langevin (sampling).",
    ),
]
_WORDS = ("sampling", "order", "momentum_kind", "noise_kind", "neighbors", "release")


def takes_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a run, and call it with the run as its first argument."""
    return with_options(command, build_run, first=_What)


def takes_run_without_noise(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same for a command that looks for the noise: it needs none to start from."""
    return with_options(command, build_run, first=_What, needs_noise=False)


def takes_run_or_file(command: Callable[..., None]) -> Callable[..., None]:
    """Do the same, but let the path of a file stand in place of algorithm and options."""
    what = "A certificate, as JSON, or an algorithm (gd, sgd, cyclic, one-pass, langevin)."
    first = Annotated[str, typer.Argument(help=what, show_default=False)]
    return with_options(command, _run_or_path, first=first)


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


def with_options(
    command: Callable[..., None],
    build: Callable[..., Any],
    *,
    first: Any = None,
    names: Sequence[str] = tuple(FLAGS),
    needs_noise: bool = True,
) -> Callable[..., None]:
    """Call the command with what ``build`` makes of the first word, if any, and these options."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "run"]
    hints = get_type_hints(command, localns={"Run": Any}, include_extras=True)
    word = [] if first is None else [_parameter("algorithm", first, inspect.Parameter.empty)]
    flags = [_parameter(name, _option(name, FLAGS[name]), None) for name in names]
    shown = [*word, *flags, *(_parameter(p.name, hints[p.name], p.default) for p in own)]

    @wraps(command)
    def called(**values: Any) -> None:
        stated = {name: values.pop(name) for name in names}
        words = [values.pop(one.name) for one in word]
        if not needs_noise and values.get("vary") not in _AT_STATED_NOISE:
            stated = _with_some_noise(words[0], stated)
        command(build(*words, stated), **values)

    called.__dict__["__signature__"] = inspect.Signature(shown)
    called.__annotations__ = {p.name: p.annotation for p in shown}
    return called


def _with_some_noise(algorithm: Algorithm, stated: dict[str, Any]) -> dict[str, Any]:
    """Return the options with a noise to start a search from, if they state none."""
    given = any(stated[name] is not None for name in NOISES)
    if given or algorithm is Algorithm.LANGEVIN:
        return stated
    return {**stated, "noise_multiplier": 1.0}


def _option(name: str, flag: Flag) -> Any:
    numbers = {int: whole_option, float: real_option}
    if flag.kind in numbers:
        made = numbers[flag.kind](_names(name, flag), help=flag.help, panel=flag.panel)
        return Annotated[flag.kind | None, made]
    declared = typer.Option(_names(name, flag), help=flag.help, rich_help_panel=flag.panel)
    return Annotated[flag.kind | None, declared]


def _names(name: str, flag: Flag) -> str:
    dashed = f"--{name.replace('_', '-')}"
    return f"{dashed}/--no{dashed[1:]}" if name == "convex" else dashed


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
    inner = (*LOSS_FLAGS, *_CHECKPOINT_FLAGS, "diameter", "radius")
    arguments = {name: value for name, value in given.items() if name not in inner}
    arguments |= {"loss": loss_of(given), "domain": domain_of(given)}
    if "max_records_per_person" in arguments:
        arguments["group_size"] = arguments.pop("max_records_per_person")
    return _describing(algorithm)(**arguments)


def _release(given: dict[str, Any]) -> Release | str:
    from dplateau.algorithms import Checkpoints
    from dplateau.ground import checks

    stated = {name: given[name] for name in _CHECKPOINT_FLAGS if name in given}
    checks.choice("release", given["release"], _RELEASES)
    if given["release"] != Checkpoints.name:
        for name in stated:
            raise InvalidInput(f"{_names(name, FLAGS[name])} goes with --release checkpoints")
        return str(given["release"])
    if not stated:
        raise InvalidInput(
            "which checkpoints? add --every 100, --at 100,200,500 or --last-iterates 10"
        )
    if len(stated) > 1:
        named = " and ".join(_names(name, FLAGS[name]) for name in stated)
        raise InvalidInput(
            f"state the checkpoints once: --every, --at or --last-iterates; got {named}"
        )
    if "at" in stated:
        stated["at"] = [_step(word) for word in stated["at"].split(",")]
    if "last_iterates" in stated:
        stated["last"] = stated.pop("last_iterates")
    return Checkpoints(**stated)


def _step(word: str) -> int:
    try:
        return whole_number(word)
    except typer.BadParameter:
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


_RELEASES = ("last", "all", "random_stop", "checkpoints")
_CHECKPOINT_FLAGS = ("every", "at", "last_iterates")
LOSS_FLAGS = (
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


def loss_of(given: dict[str, Any]) -> LossGeometry | None:
    """Return the constants of the loss that the options state."""
    from dplateau.algorithms import LossGeometry

    stated = {name: given[name] for name in LOSS_FLAGS if name in given}
    if not stated:
        return None
    stated.setdefault("convex", not stated.get("saddle", False))
    stated.setdefault("lipschitz", float("inf"))
    for name, parts in {
        "holder": ("holder_exponent", "holder_constant"),
        "dissipativity": ("dissipativity_offset", "dissipativity_rate"),
    }.items():
        pair = [stated.pop(part) for part in parts if part in stated]
        if len(pair) == 1:
            raise InvalidInput(
                f"--{parts[0].replace('_', '-')} and --{parts[1].replace('_', '-')} go together"
            )
        if pair:
            stated[name] = tuple(pair)
    return LossGeometry(**stated)


def domain_of(given: dict[str, Any]) -> Domain | None:
    """Return the domain that the options state."""
    from dplateau.algorithms import Ball, Body

    if "diameter" in given and "radius" in given:
        raise InvalidInput("state the domain once: --diameter or --radius")
    if "radius" in given:
        return Ball(given["radius"])
    return Body(given["diameter"]) if "diameter" in given else None
