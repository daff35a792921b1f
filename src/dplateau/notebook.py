"""Results as small pages in notebooks: the answer, a table, and a picture where it helps.

Pictures need the extra ``plots``; without it the pages have tables only.
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import singledispatch

import numpy as np

from dplateau.audit import AuditReport, Tightness
from dplateau.certificates import (
    Calibration,
    Certificate,
    Comparison,
    Composition,
    EpsilonOverSteps,
    RecordEpsilons,
)
from dplateau.certificates.certify import HISTORICAL_MARK
from dplateau.errors import NotApplicable
from dplateau.ground.shown import Shown, rounded_down, rounded_up
from dplateau.planning import Plan
from dplateau.plots import (
    ComparisonDisplay,
    Display,
    EpsilonOverDeltaDisplay,
    EpsilonOverStepsDisplay,
    MixingDisplay,
)
from dplateau.plots.panels import Line, Panel, PanelsDisplay
from dplateau.sampling import MixingCertificate

_CELL = "text-align:left;vertical-align:top"
_BAR = "display:inline-block;height:0.8em;background:#0072B2;vertical-align:middle"


@singledispatch
def page_of(result: Shown) -> str:
    """Return a result as HTML; one that has no page of its own as text."""
    return f"<pre>{html.escape(str(result))}</pre>"


@page_of.register
def _(certificate: Certificate) -> str:
    left = [(a.status, a.text) for a in certificate.assumptions]
    display = None
    if certificate.claim is not None:
        display = _safely(lambda: EpsilonOverDeltaDisplay.from_certificate(certificate))
    return _page(str(certificate).partition("\n")[0], _table(("", "rests on"), left), display)


@page_of.register
def _(composition: Composition) -> str:
    parts = [
        (f"{entry.count} x", getattr(entry.part, "headline", getattr(entry.part, "name", "")))
        for entry in composition.entries
    ]
    return _page(composition.headline, _table(("", "release"), parts))


@page_of.register
def _(comparison: Comparison) -> str:
    answers = [row for row in comparison.rows if row.epsilon is not None]
    rows = [
        (
            row.title,
            rounded_up(row.epsilon or 0.0),
            "" if row.sound else HISTORICAL_MARK,
            row.citation,
        )
        for row in answers
    ]
    refused = [(", ".join(names), reason) for reason, names in comparison.refusals.items()]
    table = _table(("bound", f"epsilon at delta = {rounded_up(comparison.delta)}", "", ""), rows)
    more = _folded("Bounds that say nothing", _table(("bounds", "why"), refused))
    # The reasons stand in the table: in the picture they would be too small to read.
    display = replace(ComparisonDisplay.from_comparison(comparison), refused=())
    return _page(comparison.headline, table + more, display)


@page_of.register
def _(calibration: Calibration) -> str:
    return _page(str(calibration).partition(":")[0]) + page_of(calibration.certificate)


@page_of.register
def _(curve: EpsilonOverSteps) -> str:
    return _page(str(curve), "", _safely(lambda: EpsilonOverStepsDisplay.from_curve(curve)))


@page_of.register
def _(records: RecordEpsilons) -> str:
    line = Line("each record's own", records.positions.astype(float), records.epsilons, "ours")
    panel = Panel("by position", "batch in the epoch", "epsilon", (line,))
    return _page(str(records), "", PanelsDisplay((panel,)))


@page_of.register
def _(plan: Plan) -> str:
    tried = ([plan.chosen] if plan.chosen is not None else []) + list(plan.rejected)
    top = max((candidate.expected.error for candidate in tried), default=1.0)
    rows = [
        ("chosen" if i == 0 else "", str(candidate), _bar(candidate.expected.error / top))
        for i, candidate in enumerate(tried)
    ]
    doubts = "".join(f"<p><b>{html.escape(doubt)}</b></p>" for doubt in plan.doubts)
    return _page(plan.certificate.headline, doubts + _table(("", "recipe", "error"), rows, raw=2))


@page_of.register
def _(tightness: Tightness) -> str:
    top = max(tightness.upper, tightness.lower.epsilon)
    rows = [
        ("claimed", rounded_up(tightness.upper, 4), _bar(tightness.upper / top)),
        ("needed", rounded_down(tightness.lower.epsilon, 4), _bar(tightness.lower.epsilon / top)),
    ]
    title = f"at most {rounded_up(tightness.ratio, 4)} times the truth ({tightness.bound})"
    return _page(title, _table(("", "epsilon", ""), rows, raw=2))


@page_of.register
def _(report: AuditReport) -> str:
    top = max(report.claimed_epsilon, report.epsilon_lower_bound, 1e-300)
    rows = [
        ("claimed", rounded_up(report.claimed_epsilon, 4), _bar(report.claimed_epsilon / top)),
        (
            f"shown with confidence {report.confidence:g}",
            rounded_down(report.epsilon_lower_bound, 4),
            _bar(report.epsilon_lower_bound / top),
        ),
    ]
    first, *lines = str(report).split("\n")
    # A claim may be refuted at another epsilon than its own: the first line says where.
    why = f"<p>{html.escape(lines[0].strip())}</p>" if report.violated and lines else ""
    details = _folded("Details", f"<pre>{html.escape(str(report))}</pre>")
    return _page(first, why + _table(("", "epsilon", ""), rows, raw=2) + details)


@page_of.register
def _(certificate: MixingCertificate) -> str:
    steps = np.unique(np.geomspace(1, max(2, 2 * certificate.steps), 40).astype(np.int64))
    display = None
    if not certificate.run.has_schedule:
        display = _safely(lambda: MixingDisplay.from_run(certificate.run, steps))
    left = [(a.status, a.text) for a in certificate.assumptions]
    return _page(str(certificate).partition("\n")[0], _table(("", "rests on"), left), display)


# ---- pieces of a page ---------------------------------------------------------------------------


def _page(title: str, body: str = "", display: Display | None = None) -> str:
    return f"<div><p><b>{html.escape(title)}</b></p>{_picture(display)}{body}</div>"


def _picture(display: Display | None) -> str:
    if display is None:
        return ""
    try:
        data = b64encode(display.to_bytes(".svg")).decode("ascii")
    except NotApplicable as reason:
        return f"<p>{html.escape(str(reason))}</p>"
    source = f"data:image/svg+xml;base64,{data}"
    # Wide enough for the words in it, at the usual size of letters.
    return f'<img alt="" style="max-width:48em;width:100%" src="{source}">'


def _safely(make: Callable[[], Display]) -> Display | None:
    """Return the display, or None where what was asked has no picture."""
    try:
        return make()
    except NotApplicable:
        return None


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, raw: int | None = None) -> str:
    """Return a table; the column ``raw`` is HTML already."""
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL}">{cell if i == raw else html.escape(cell)}</td>'
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    style = "text-align:left;white-space:nowrap"
    top = "".join(f'<th style="{style}">{html.escape(name)}</th>' for name in head)
    return f"<table><tr>{top}</tr>{body}</table>" if body else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{body}</details>" if body else ""


def _bar(share: float) -> str:
    return f'<span style="{_BAR};width:{12 * min(1.0, max(0.0, share)):.2f}em"></span>'
