"""Refusals in the words of the command line: the library speaks of fields, a user types options."""

from __future__ import annotations

import re

from dplateau.cli.options import FLAGS, Algorithm

# What Python calls otherwise than the command line does.
_ALGORITHMS = {
    "NoisyGD": Algorithm.GD,
    "NoisySGD": Algorithm.SGD,
    "CyclicSGD": Algorithm.CYCLIC,
    "OnePassSGD": Algorithm.ONE_PASS,
    "ProjectedLangevin": Algorithm.LANGEVIN,
}
_OTHER_NAMES = {
    "group_size": "max_records_per_person",
    "holder": "holder_exponent",
    "dissipativity": "dissipativity_offset",
    "n_classes": "classes",
}
# Fields of other commands than those that take a run.
_OTHER_FIELDS = (
    "delta",
    "epsilon",
    "vary",
    "data_norm",
    "target_bound",
    "compute_budget",
    "class_weight",
    "class_prior",
    "decision_prior",
    "evaluate_epsilon",
    "n_public",
    "safe_noise",
    "loss",
    "d",
    "tv",
    "model",
    "engine",
    "filter",
    "runs",
    "confidence",
    "jobs",
    "delta_share",
    "separator",
    "decimal",
)
# Values that Python spells with an underscore; names of a user's columns stay as they are.
_SPELLED = "add_remove|random_stop|shuffle_once|heavy_ball|learning_rate|batch_size"
_FIELDS = (*FLAGS, *_OTHER_FIELDS, *_OTHER_NAMES)
_ANY = "|".join(sorted(_FIELDS, key=len, reverse=True))
# Names that cannot be mistaken for English.
_LONG = "|".join(sorted((name for name in _FIELDS if "_" in name), key=len, reverse=True))

_CALL = re.compile(r"(?:\w+=)?(?:LossGeometry|Ball|Body|Checkpoints)\(([^()]*)\)")
_STATED = re.compile(rf"\b({_ANY})=('[\w-]*'|[\w.+-]*\w|\.\.\.)")
_NAMED = re.compile(rf"(?<!['\w-])({_LONG})(?!['\w=])")
_FIRST = re.compile(rf"^({_ANY}) (must|is|cannot|has|follows|lowers)\b")
_QUOTED = re.compile(rf"'({_SPELLED})'")
_LISTED = re.compile(r"(--[a-z0-9-]+ [\w-]+)((?:(?:, | or )'[\w-]+')+)")
_EITHER = re.compile(r"\b(steps) or (epochs)\b")


def in_options(text: str) -> str:
    """Return a message of the library as a user of the command line would say it.

    >>> in_options("pass loss=LossGeometry(lipschitz=..., convex=...)")
    'pass --lipschitz ...'
    >>> in_options("release must be one of 'last', 'all', 'random_stop'; got 'final'")
    "--release must be one of 'last', 'all', 'random-stop'; got 'final'"
    >>> in_options("use neighbors='replace', or sampling='poisson' (batch_size=5 exceeds n=3)")
    'use --neighbors replace, or --sampling poisson (--batch-size 5 exceeds --n 3)'
    >>> in_options("is about order='shuffle_once' or 'reshuffle'; there is no column 'is_new'")
    "is about --order shuffle-once or reshuffle; there is no column 'is_new'"
    """
    text = _CALL.sub(_call, text).replace("convex=True", "--convex")
    text = text.replace("convex=False", "--no-convex").replace("saddle=True", "--saddle")
    text = text.replace("leave saddle out", "leave --saddle out")
    text = _FIRST.sub(lambda m: f"{_option(m[1])} {m[2]}", text)
    text = _STATED.sub(lambda m: f"{_option(m[1])} {_value(m[2])}", text)
    text = _NAMED.sub(lambda m: _option(m[1]), text)
    text = _EITHER.sub(r"--\1 or --\2", text)
    text = _QUOTED.sub(lambda m: f"'{_dashed(m[1])}'", text)
    text = _LISTED.sub(lambda m: m[1] + m[2].replace("'", ""), text)
    text = re.sub(r"\bvary '([\w-]+)'", r"say --vary \1", text)
    text = text.replace("compare(run, delta)", "'dplateau compare'")
    text = text.replace("' or Ledger.create makes", "' makes")
    text = text.replace("per_record", "per-record").replace("use certify", "use account")
    for name, algorithm in _ALGORITHMS.items():
        text = re.sub(rf"\b{name}\b", algorithm, text)
    return text


def _call(match: re.Match[str]) -> str:
    """Return the arguments of a constructor, each as an option; convexity is what is assumed."""
    what = match[0].partition("(")[0].rpartition("=")[2]
    stated = [part.partition("=") for part in match[1].split(", ")]
    if what == "Checkpoints":
        names = {"last": "last_iterates"}
        options = [
            f"{_option(names.get(name, name))} {value}" for name, _, value in stated if value
        ]
        return " ".join(["--release checkpoints", *options])
    if what in ("Ball", "Body"):
        size = stated[0][2] or stated[0][0]
        return f"{'--radius' if what == 'Ball' else '--diameter'} {size}"
    return " ".join(f"{_option(name)} {value}" for name, _, value in stated if name != "convex")


def _option(name: str) -> str:
    return f"--{_dashed(_OTHER_NAMES.get(name, name))}"


def _value(text: str) -> str:
    return _dashed(text.strip("'"))


def _dashed(name: str) -> str:
    return name.replace("_", "-")
