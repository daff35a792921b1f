"""What the page can set: every field with its limits, and from a setting to a run and back.

A setting travels as a query string, ``n=60000&batch_size=600&...``: in the fragment of the page's
address, in requests, and after ``dplateau explore --state``. Limits keep one question from taking
minutes; they are stated here only, and the page builds its sliders from them.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl, urlencode

from dplateau.algorithms import (
    Body,
    Checkpoints,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    Run,
)
from dplateau.errors import DplateauError, InvalidInput
from dplateau.ground.shown import rounded_down
from dplateau.losses import Hinge, Huber, Logistic

MOST_STEPS = 10_000_000
LONGEST_QUERY = 2_000


class WrongFields(InvalidInput):
    """A setting that describes no run; ``errors`` says what is wrong beside which field.

    The field "" stands for the setting as a whole.
    """

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


@dataclass(frozen=True)
class Number:
    """A number with its limits, and the part of them that a slider covers.

    The slider is logarithmic. ``zero`` is what its lower end means beside the numbers ("no
    ridge"), ``none`` what its upper end means ("no limit"); a field that may be empty is none.
    """

    kind: ClassVar[Literal["number"]] = "number"
    label: str
    help: str
    group: str
    limits: tuple[float, float]
    slider: tuple[float, float]
    whole: bool = False
    zero: str | None = None
    none: str | None = None
    only: tuple[str, str] | None = None

    def read(self, text: str) -> float | None:
        """Return the number that was typed, or say what is wrong with it."""
        if not text.strip():
            if self.none is not None:
                return None
            raise InvalidInput(f"type a number {self._range()}")
        try:
            value = float(text)
        except ValueError:
            raise InvalidInput(f"{text.strip()[:40]!r} is no number; use one like 0.01") from None
        if self.zero is not None and value == 0:
            return 0.0
        if not self.limits[0] <= value <= self.limits[1]:
            raise InvalidInput(f"must be {self._range()}; got {value:g}")
        if self.whole and value != math.floor(value):
            raise InvalidInput(f"must be a whole number; got {value:g}")
        return int(value) if self.whole else value

    def _range(self) -> str:
        zero = "0, or " if self.zero is not None else ""
        none = ", or nothing" if self.none is not None else ""
        low, high = self.limits
        return f"{zero}from {low:g} to {high:g}{none}"


@dataclass(frozen=True)
class Choice:
    """One of a few words, each with what it means."""

    kind: ClassVar[Literal["choice"]] = "choice"
    label: str
    help: str
    options: Mapping[str, str]
    group: str
    only: tuple[str, str] | None = None

    def read(self, text: str) -> str:
        """Return the word, or say which there are."""
        if text not in self.options:
            raise InvalidInput(f"must be one of {', '.join(self.options)}; got {text[:40]!r}")
        return text


# In the order of the page. ``only`` names the choice that a field belongs to.
FIELDS: dict[str, Number | Choice] = {
    "release": Choice(
        "What leaves",
        "A promise: nothing else that depends on the data is seen by anyone.",
        {
            "last": "only the final model",
            "checkpoints": "some models on the way",
            "all": "the model after every step",
        },
        "Promise",
    ),
    "every": Number(
        "A model every so many steps",
        "Steps between two models that leave.",
        "Promise",
        (1, MOST_STEPS),
        (1, 10_000),
        whole=True,
        only=("release", "checkpoints"),
    ),
    "epochs": Number(
        "Epochs", "How long you train: passes over the data.", "Training", (1e-6, 1e7), (0.1, 1e4)
    ),
    "noise_multiplier": Number(
        "Noise",
        "Standard deviation of the noise on each summed gradient, in units of the clip norm.",
        "Training",
        (0.05, 1e5),
        (0.3, 300),
    ),
    "l2": Number(
        "Ridge",
        "Strength of the ridge term (l2): with it every step forgets a little of the past.",
        "Training",
        (1e-9, 1e3),
        (1e-5, 1),
        zero="no ridge",
    ),
    "learning_rate": Number(
        "Learning rate", "Length of a step.", "Training", (1e-6, 1e3), (1e-3, 10)
    ),
    "n": Number(
        "Records", "Size of the data set (public).", "Data", (1, 1e9), (100, 1e7), whole=True
    ),
    "batch_size": Number(
        "Batch size", "Records in a step, on average.", "Data", (1, 1e9), (1, 1e6), whole=True
    ),
    "batches": Choice(
        "Batches",
        "How the records of a step are chosen.",
        {
            "poisson": "random (Poisson)",
            "fixed": "random, all of one size",
            "full": "all records at every step",
            "cyclic": "in order",
            "shuffle_once": "shuffled once",
            "reshuffle": "shuffled every epoch",
        },
        "Data",
    ),
    "loss": Choice(
        "Loss",
        "Of one record, for rows scaled to norm 1.",
        {
            "logistic": "logistic",
            "huber": "Huber (regression)",
            "hinge": "hinge (not smooth)",
            "own": "own constants",
        },
        "Model",
    ),
    "lipschitz": Number(
        "Clip norm",
        "Bound on the norm of one record's gradient.",
        "Model",
        (1e-6, 1e6),
        (0.01, 100),
        only=("loss", "own"),
    ),
    "smoothness": Number(
        "Smoothness",
        "How fast one record's gradient can turn; empty if it jumps.",
        "Model",
        (1e-6, 1e6),
        (0.01, 100),
        none="not smooth",
        only=("loss", "own"),
    ),
    "convex": Choice(
        "Shape",
        "Whether the loss of every record is convex.",
        {"yes": "convex", "no": "not convex"},
        "Model",
        only=("loss", "own"),
    ),
    "diameter": Number(
        "Diameter",
        "Parameters are kept in a convex body of this diameter; empty for none.",
        "Model",
        (1e-3, 1e6),
        (0.1, 100),
        none="unbounded",
    ),
    "neighbors": Choice(
        "Neighbors",
        "What two data sets that must look alike differ in.",
        {"add_remove": "one record, there or not", "replace": "one record, exchanged"},
        "Guarantee",
    ),
    "delta": Number(
        "Delta",
        "Probability with which the guarantee may fail; take less than 1 / records.",
        "Guarantee",
        (1e-15, 0.1),
        (1e-12, 1e-2),
    ),
    "target": Number(
        "Target epsilon", "What the two questions aim at.", "Questions", (1e-3, 100), (0.1, 10)
    ),
}
_PRESETS: dict[str, Callable[[], LossGeometry]] = {
    "logistic": lambda: Logistic().geometry(1.0),
    "huber": lambda: Huber().geometry(1.0),
    "hinge": lambda: Hinge().geometry(1.0),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that the page can set. The defaults are the run that the page opens with.

    >>> setting = Setting.read("noise_multiplier=2&release=all")
    >>> setting.run().steps, setting.run().release.name
    (5000, 'all')
    >>> Setting.read(setting.query()) == setting
    True
    """

    epochs: float = 50.0
    noise_multiplier: float = 1.0
    l2: float = 0.005
    learning_rate: float = 2.0
    n: int = 60_000
    batch_size: int = 600
    batches: str = "poisson"
    diameter: float | None = None
    loss: str = "logistic"
    lipschitz: float = 1.0
    smoothness: float | None = 0.25
    convex: str = "yes"
    release: str = "last"
    every: int = 500
    neighbors: str = "add_remove"
    delta: float = 1e-5
    target: float = 1.0

    @classmethod
    def read(cls, query: str) -> Setting:
        """Read a query string; fields that are left out keep their defaults."""
        if len(query) > LONGEST_QUERY:
            raise WrongFields({"": f"a setting has at most {LONGEST_QUERY} characters"})
        values: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, text in parse_qsl(query.removeprefix("#"), keep_blank_values=True):
            if name not in FIELDS:
                errors[""] = f"there is no field {name[:40]!r}; fields are {', '.join(FIELDS)}"
                continue
            try:
                values[name] = FIELDS[name].read(text)
            except InvalidInput as problem:
                errors[name] = str(problem)
        if errors:
            raise WrongFields(errors)
        setting = cls(**values)
        setting.run()
        return setting

    def query(self) -> str:
        """Return the setting as a query string that :meth:`read` reads."""
        values = {name: getattr(self, name) for name in FIELDS if self._counts(name)}
        return urlencode({name: _typed(value) for name, value in values.items()})

    def _counts(self, name: str) -> bool:
        only = FIELDS[name].only
        return only is None or getattr(self, only[0]) == only[1]

    def run(self) -> Run:
        """Return the run, or say which fields do not fit each other."""
        if self.batches != "full" and self.batch_size > self.n:
            raise WrongFields(
                {"batch_size": f"a batch has at most all {self.n} records; got {self.batch_size}"}
            )
        steps = self.epochs * (1 if self.batches == "full" else self.n / self.batch_size)
        if steps > MOST_STEPS:
            most = MOST_STEPS * self.epochs / steps
            raise WrongFields(
                {
                    "epochs": f"that is {steps:.3g} steps, and this page goes to {MOST_STEPS}: "
                    f"use at most {math.floor(most) if most >= 1 else most:.6g} epochs"
                }
            )
        try:
            return _describing(self.batches)(**self.arguments())
        except DplateauError as problem:
            raise WrongFields({_blamed(str(problem)): str(problem)}) from None

    def arguments(self) -> dict[str, Any]:
        """Return what the function that describes the run is called with."""
        arguments: dict[str, Any] = {"n": self.n}
        if self.batches != "full":
            arguments["batch_size"] = self.batch_size
        arguments["epochs"] = self.epochs
        if self.batches == "fixed":
            arguments["sampling"] = "fixed"
        if self.batches in _ORDERS:
            arguments["order"] = self.batches
        arguments["learning_rate"] = self.learning_rate
        if self.l2:
            arguments["l2"] = self.l2
        if self.diameter is not None:
            arguments["domain"] = Body(self.diameter)
        arguments["loss"] = self.geometry()
        arguments["noise_multiplier"] = self.noise_multiplier
        if self.neighbors != "add_remove":
            arguments["neighbors"] = self.neighbors
        arguments["release"] = (
            Checkpoints(every=self.every) if self.release == "checkpoints" else self.release
        )
        return arguments

    def geometry(self) -> LossGeometry:
        """Return the constants of one record's loss."""
        if self.loss != "own":
            return _PRESETS[self.loss]()
        smoothness = math.inf if self.smoothness is None else self.smoothness
        return LossGeometry(
            lipschitz=self.lipschitz, convex=self.convex == "yes", smoothness=smoothness
        )

    def python(self) -> str:
        """Return a program that makes the same claim."""
        given = self.arguments()
        kind = _describing(self.batches).__name__
        types = {type(value).__name__ for value in given.values()}
        extra = sorted(types & {"Body", "Checkpoints", "LossGeometry"})
        lines = [f"    {name}={_as_code(value)}," for name, value in given.items()]
        return "\n".join(
            [
                f"from dplateau import {', '.join([*extra, kind, 'certify'])}",
                "",
                f"run = {kind}(",
                *lines,
                ")",
                f"print(certify(run, delta={self.delta!r}))",
                "",
            ]
        )

    def command(self) -> str:
        """Return the command that makes the same claim."""
        words = ["dplateau", "account", _COMMANDS[self.batches]]
        for name, value in self.arguments().items():
            words += _as_options(name, value)
        return shlex.join([*words, "--delta", f"{self.delta!r}"])


_ORDERS = ("cyclic", "shuffle_once", "reshuffle")
_COMMANDS = {
    "poisson": "sgd",
    "fixed": "sgd",
    "full": "gd",
    "cyclic": "cyclic",
    "shuffle_once": "cyclic",
    "reshuffle": "cyclic",
}


def setting_of(run: Run, delta: float, target: float = Setting.target) -> Setting | None:
    """Return the setting that describes the run, or None if the page cannot show such runs.

    >>> setting_of(Setting(noise_multiplier=2.0).run(), 1e-6).query() == Setting(
    ...     noise_multiplier=2.0, delta=1e-6).query()
    True
    """
    given = run.to_dict()
    batches = {
        "NoisyGD": "full",
        "NoisySGD": given.get("sampling"),
        "CyclicSGD": given.get("order"),
    }
    release, loss = given["release"], run.loss
    if run.has_schedule or run.kind not in batches or run.learning_rate is None or loss is None:
        return None
    try:
        values: dict[str, Any] = {
            # Rounded down: as many steps as cover the epochs are then those of the run.
            "epochs": float(rounded_down(run.epochs, 12)),
            "noise_multiplier": run.noise_multiplier,
            "l2": run.l2,
            "learning_rate": run.learning_rate,
            "n": run.n,
            "batch_size": Setting.batch_size if run.kind == "NoisyGD" else run.batch_size,
            "batches": batches[run.kind],
            "diameter": None if run.domain is None else run.diameter,
            "loss": _preset_of(loss),
            "lipschitz": loss.lipschitz,
            "smoothness": loss.smoothness if math.isfinite(loss.smoothness) else None,
            "convex": "yes" if loss.convex else "no",
            "release": "checkpoints" if isinstance(release, dict) else release,
            "every": release["every"] if isinstance(release, dict) else Setting.every,
            "neighbors": run.neighbors,
            "delta": delta,
            "target": target,
        }
        shown = Setting.read(urlencode({name: _typed(value) for name, value in values.items()}))
        shown = Setting.read(shown.query())
    except (DplateauError, KeyError):
        return None
    return shown if _plainly(shown.run()) == _plainly(run) else None


def _plainly(run: Run) -> Run:
    """Return the run with everything that can be stated in several ways stated in one."""
    domain = None if run.domain is None else Body(run.diameter)
    plain = run.replace(
        steps=run.steps, noise_multiplier=run.noise_multiplier, domain=domain, dimension=None
    )
    return plain if run.kind == "NoisyGD" else plain.replace(batch_size=run.batch_size)


def _preset_of(loss: LossGeometry) -> str:
    return next((name for name, preset in _PRESETS.items() if preset() == loss), "own")


def _describing(batches: str) -> Callable[..., Run]:
    if batches == "full":
        return NoisyGD
    return CyclicSGD if batches in _ORDERS else NoisySGD


def _blamed(problem: str) -> str:
    """Return the field that a refusal of the library is about: the first that it names."""
    return next((word for word in re.findall(r"\w+", problem) if word in FIELDS), "")


def _typed(value: Any) -> str:
    """Return a value as a person would type it."""
    if value is None:
        return ""
    if isinstance(value, float) and value == math.floor(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _as_code(value: Any) -> str:
    match value:
        case Body(diameter=diameter):
            return f"Body({diameter!r})"
        case Checkpoints(every=every):
            return f"Checkpoints(every={every})"
        case LossGeometry():
            stated = ", ".join(f"{name}={part!r}" for name, part in value.to_dict().items())
            return f"LossGeometry({stated})"
        case _:
            return repr(value)


def _as_options(name: str, value: Any) -> list[str]:
    match value:
        case Body(diameter=diameter):
            return ["--diameter", _typed(diameter)]
        case Checkpoints(every=every):
            return ["--release", "checkpoints", "--every", str(every)]
        case LossGeometry():
            options = ["--lipschitz", _typed(value.lipschitz)]
            if math.isfinite(value.smoothness):
                options += ["--smoothness", _typed(value.smoothness)]
            if value.holder is not None:
                exponent, constant = value.holder
                options += ["--holder-exponent", _typed(exponent)]
                options += ["--holder-constant", _typed(constant)]
            return options if value.convex else [*options, "--no-convex"]
        case _:
            return [f"--{name.replace('_', '-')}", _typed(value).replace("_", "-")]
