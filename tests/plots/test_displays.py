"""What is drawn is the data, all of it, and the files are real pictures."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from functools import lru_cache
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D
from matplotlib.text import Text

from dplateau import (
    Ball,
    Body,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    OnePassSGD,
    certify,
    compare,
    epsilon_over_steps,
)
from dplateau.algorithms import Run
from dplateau.audit import lower_over_records, lower_over_steps
from dplateau.certificates import loss_per_record
from dplateau.ground.types import FloatArray
from dplateau.plots import (
    ComparisonDisplay,
    Display,
    EpsilonOverStepsDisplay,
    RecordDisplay,
    TradeoffDisplay,
)

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)
BALL = NoisyGD(
    n=100,
    steps=1,
    learning_rate=0.1,
    noise_std=2.0,
    domain=Ball(0.5),
    loss=SMOOTH,
    release="last",
)
RIDGE = NoisyGD(
    n=100, steps=1, learning_rate=0.5, l2=0.1, noise_std=0.1, loss=SMOOTH, release="last"
)
ONE_PASS = OnePassSGD(
    n=12,
    learning_rate=0.5,
    noise_std=2.0,
    domain=Body(1.0),
    loss=SMOOTH,
    neighbors="replace",
    release="last",
)
CYCLIC = CyclicSGD(
    n=100,
    batch_size=10,
    epochs=5,
    learning_rate=0.1,
    l2=0.01,
    noise_std=0.1,
    loss=SMOOTH,
    release="last",
)
STEPS = [1, 10, 100, 1000, 10_000]


@lru_cache
def over_steps(run: Run = RIDGE) -> EpsilonOverStepsDisplay:
    curve = epsilon_over_steps(run, 1e-5, STEPS)
    return EpsilonOverStepsDisplay.from_curve(curve, lower_over_steps(run, 1e-5, STEPS))


@lru_cache
def over_records(run: Run = ONE_PASS) -> RecordDisplay:
    losses = loss_per_record(run, delta=1e-5)
    return RecordDisplay.from_losses(losses, lower_over_records(run, 1e-5, losses.positions))


def every_display() -> dict[str, Display]:
    return {
        "gd on a ball": over_steps(BALL),
        "gd with ridge": over_steps(RIDGE),
        "one pass": over_records(ONE_PASS),
        "cyclic": over_records(CYCLIC),
        "deltas": RecordDisplay.from_losses(loss_per_record(ONE_PASS, epsilon=0.5)),
        "trade-off": TradeoffDisplay.from_certificate(certify(RIDGE.replace(steps=100), 1e-5)),
        "comparison": ComparisonDisplay.from_comparison(compare(BALL.replace(steps=100), 1e-5)),
    }


DISPLAYS = every_display()


def line_named(ax: Axes, name: str) -> Line2D:
    found = [line for line in ax.lines if line.get_label() == name]
    assert len(found) == 1, f"{len(found)} lines are named {name!r}"
    return found[0]


def data_of(line: Line2D) -> tuple[FloatArray, FloatArray]:
    return np.asarray(line.get_xdata(orig=True)), np.asarray(line.get_ydata(orig=True))


def texts(ax: Axes) -> str:
    return "\n".join(text.get_text() for text in ax.texts)


def test_every_bound_over_steps_is_drawn_as_it_is() -> None:
    display = over_steps()
    ax = display.plot()
    assert len(display.bounds) >= 6
    for bound in display.bounds:
        x, y = data_of(line_named(ax, bound.title))
        assert x.tolist() == STEPS
        assert y.tolist() == bound.epsilon.tolist()
        assert bound.title in texts(ax)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "steps T"
    assert ax.get_ylabel() == "epsilon at delta = 1e-05"
    assert "n = 100" in ax.get_title(loc="left")


def test_hidden_bounds_are_solid_and_released_ones_dashed() -> None:
    display = over_steps()
    ax = display.plot()
    styles = {b.hidden_state: set[str]() for b in display.bounds}
    for bound in display.bounds:
        styles[bound.hidden_state].add(str(line_named(ax, bound.title).get_linestyle()))
    assert styles == {True: {"-"}, False: {"--"}}


@pytest.mark.parametrize("name", ["gd on a ball", "gd with ridge", "one pass", "cyclic"])
def test_colors_are_distinct(name: str) -> None:
    ax = DISPLAYS[name].plot()
    named = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    colors = [np.array(to_rgb(str(line.get_color()))) for line in named]
    closest = min(float(np.abs(a - b).max()) for a, b in combinations(colors, 2))
    assert closest > 0.15


def test_the_lower_bound_is_dotted_and_what_lies_below_it_is_shaded() -> None:
    display = over_steps(BALL)
    assert display.lower is not None
    ax = display.plot()
    x, y = data_of(line_named(ax, "proved lower bound"))
    assert x.tolist() == display.lower.at.tolist()
    assert y.tolist() == display.lower.epsilon.tolist()
    assert ":" in {line.get_linestyle() for line in ax.lines}
    assert len(ax.collections) == 1
    assert "no claim can be here" in texts(ax)


@pytest.mark.parametrize("display", [over_steps(BALL), over_records(ONE_PASS)])
def test_the_shade_never_reaches_above_a_computed_point(
    display: EpsilonOverStepsDisplay | RecordDisplay,
) -> None:
    assert display.lower is not None
    ax = display.plot()
    x, y = data_of(next(line for line in ax.lines if line.get_linestyle() == ":"))
    for at, epsilon in zip(display.lower.at, display.lower.epsilon, strict=True):
        assert np.all(y[x == at] <= epsilon)


def test_a_lower_bound_that_ends_early_is_named_where_it_ends() -> None:
    display = over_steps()
    assert display.lower is not None
    first = replace(display.lower, at=display.lower.at[:1], epsilon=display.lower.epsilon[:1])
    ax = replace(display, lower=first).plot()
    assert "no claim can be here" not in texts(ax)
    label = next(text for text in ax.texts if "proved lower bound" in text.get_text())
    assert tuple(getattr(label, "xy")) == (1, first.epsilon[0])  # noqa: B009


def test_without_a_lower_bound_nothing_is_shaded() -> None:
    display = replace(over_steps(), lower=None)
    ax = display.plot()
    assert len(ax.lines) == len(display.bounds)
    assert not ax.collections


def test_values_that_do_not_exist_are_left_out_without_a_warning() -> None:
    display = over_steps()
    broken = replace(display.bounds[0], epsilon=np.array([0.0, 1.0, np.inf, 2.0, np.inf]))
    ax = replace(display, bounds=(broken, *display.bounds[1:])).plot()
    assert f"{broken.title}  2.00" in texts(ax)
    replace(display, bounds=(broken,), lower=None).to_bytes(".png")


def test_names_at_the_ends_do_not_overlap() -> None:
    for name in ("gd on a ball", "gd with ridge", "one pass", "cyclic"):
        figure = DISPLAYS[name].figure()
        figure.savefig(io.BytesIO(), format="png")
        labels = [text for text in figure.axes[0].texts if "  " in text.get_text()]
        # Without the line that ties a name to its curve, which an annotation's own box includes.
        boxes = sorted((Text.get_window_extent(text) for text in labels), key=lambda box: box.y0)
        assert len(boxes) >= 6
        assert all(low.y1 <= high.y0 + 0.5 for low, high in pairwise(boxes))
        assert all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_labels_round_away_from_the_truth() -> None:
    display = over_steps(BALL)
    shown = texts(display.plot()).splitlines()
    for bound in display.bounds:
        line = next(text for text in shown if text.startswith(f"{bound.title}  "))
        assert float(line.split("  ")[1].split(" ")[0]) >= bound.epsilon[-1]
    assert display.lower is not None
    line = next(text for text in shown if text.startswith("proved lower bound"))
    assert float(line.split("  ")[1]) <= display.lower.epsilon[-1]


def test_every_bound_over_records_is_drawn_as_it_is() -> None:
    display = over_records()
    ax = display.plot()
    for bound in display.losses.bounds:
        x, y = data_of(line_named(ax, bound.title))
        assert x.tolist() == list(range(1, 13))
        assert y.tolist() == bound.values.tolist()
    shuffled = line_named(ax, "any record, secret random order")
    assert set(data_of(shuffled)[1].tolist()) == {display.losses.shuffled}
    if display.losses.stopped is not None:
        stopped = line_named(ax, "any record, random stop")
        assert set(data_of(stopped)[1].tolist()) == {display.losses.stopped}
    assert ax.get_ylabel() == "epsilon at delta = 1e-05"


def test_records_used_later_lose_more_and_a_secret_order_helps_the_last_one() -> None:
    for run in (ONE_PASS, CYCLIC):
        display = over_records(run)
        losses = display.losses
        assert np.all(np.diff(losses.best) >= 0)
        assert losses.shuffled is not None
        assert losses.best[0] < losses.shuffled < losses.best[-1]
        assert display.lower is not None
        assert np.all(display.lower.epsilon <= losses.best[display.lower.at - 1])


def test_deltas_have_a_logarithmic_axis() -> None:
    display = RecordDisplay.from_losses(loss_per_record(ONE_PASS, epsilon=0.5))
    ax = display.plot()
    assert ax.get_yscale() == "log"
    assert ax.get_ylabel() == "delta at epsilon = 0.5"


def test_the_tradeoff_lies_below_the_diagonal() -> None:
    certificate = certify(RIDGE.replace(steps=100), 1e-5)
    display = TradeoffDisplay.from_certificate(certificate)
    ax = display.plot()
    x, y = data_of(line_named(ax, display.label))
    assert y.tolist() == [certificate.tradeoff(float(rate)) for rate in x]
    assert np.all(x + y <= 1 + 1e-12)
    assert certificate.theorem.title in display.label
    assert data_of(line_named(ax, "nothing is learned"))[1].tolist() == [1.0, 0.0]


def test_the_comparison_shows_every_bound_or_its_reason() -> None:
    comparison = compare(BALL.replace(steps=100), 1e-5)
    ax = ComparisonDisplay.from_comparison(comparison).plot()
    names = [label.get_text() for label in ax.get_yticklabels()]
    claims = [row for row in comparison.rows if row.epsilon is not None]
    assert names == [row.title for row in claims]
    ends = [bar.get_extents().transformed(ax.transData.inverted()).x1 for bar in ax.patches]
    assert ends == pytest.approx([row.epsilon for row in claims], rel=1e-9)
    assert ax.get_xscale() == "log"
    written = " ".join(texts(ax).split())
    for row in comparison.rows:
        if row.epsilon is None:
            assert row.title in written
            assert " ".join(str(row.reason).split()) in written


@pytest.mark.parametrize("name", DISPLAYS)
def test_a_saved_picture_is_real(name: str, tmp_path: Path) -> None:
    path = DISPLAYS[name].save(tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels: FloatArray = np.asarray(imread(path))[:, :, :3]
    high, wide = pixels.shape[:2]
    assert 600 <= high <= 2500
    assert 800 <= wide <= 2500
    ink = pixels.min(axis=2) < 0.8
    assert 0.005 < ink.mean() < 0.5
    # Nothing is cut off: the outermost pixels stay white.
    assert not ink[[0, 1, -2, -1], :].any()
    assert not ink[:, [0, 1, -2, -1]].any()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF-")])
def test_the_same_data_gives_the_same_file(suffix: str, start: bytes) -> None:
    display = over_steps()
    first = display.to_bytes(suffix)
    assert first.startswith(start)
    assert display.to_bytes(suffix) == first


def test_given_axes_are_used() -> None:
    figure = Figure()
    for display in DISPLAYS.values():
        ax = figure.add_subplot()
        assert display.plot(ax) is ax
        assert ax.lines or ax.patches


def test_no_global_figure_is_left_behind() -> None:
    script = (
        "import sys; from dplateau import NoisyGD, epsilon_over_steps; "
        "from dplateau.plots import EpsilonOverStepsDisplay as Display; "
        "run = NoisyGD(n=9, steps=1, noise_multiplier=1.0, release='all'); "
        "display = Display.from_curve(epsilon_over_steps(run, 1e-5, [1, 9])); "
        "early = 'matplotlib' in sys.modules; display.to_bytes('.png'); "
        "print(early, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_a_display_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError, match="title"):
        over_steps().title = "another"  # type: ignore[misc]


@pytest.mark.parametrize("name", ["picture.gif", "picture"])
def test_unknown_suffixes_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"use \.png, \.svg, \.pdf"):
        over_steps().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot write"):
        over_steps().save(tmp_path / "nowhere" / "picture.png")


def test_what_has_no_records_in_order_is_refused() -> None:
    with pytest.raises(InvalidInput, match="have no positions"):
        loss_per_record(BALL, delta=1e-5)
    with pytest.raises(InvalidInput, match="state delta"):
        loss_per_record(ONE_PASS)
    with pytest.raises(InvalidInput, match="from 1 to 12"):
        loss_per_record(ONE_PASS, delta=1e-5, positions=[13])
    losses = loss_per_record(ONE_PASS, epsilon=0.5)
    with pytest.raises(InvalidInput, match="these losses are deltas"):
        RecordDisplay.from_losses(losses, over_records().lower)
