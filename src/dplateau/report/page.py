"""One page for a privacy officer: self-contained HTML, readable on a screen and in print.

Pictures are drawn into the page where matplotlib is installed; without it the page has tables only,
and says so. Nothing is fetched from elsewhere when it is opened.
"""

from __future__ import annotations

import html
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dplateau.algorithms import Checkpoints, Run
from dplateau.audit.monte_carlo import AuditReport
from dplateau.certificates import (
    Certificate,
    Composition,
    ForeignPart,
    compare,
    epsilon_over_steps,
    step_counts,
)
from dplateau.certificates.certify import candidates
from dplateau.errors import DplateauError, InvalidInput, NotApplicable
from dplateau.ground.sealed import AUDIT, open_sealed
from dplateau.ground.shown import counted, printable, rounded_down, rounded_up
from dplateau.plots import (
    Display,
    EpsilonOverDeltaDisplay,
    EpsilonOverStepsDisplay,
    TradeoffDisplay,
)
from dplateau.plots.canvas import in_short, require_matplotlib
from dplateau.report.sign_off import SignOff, sign_off
from dplateau.report.words import (
    FALSE_ALARMS,
    Paper,
    Words,
    certificates_in,
    percent,
    proofs_in,
    unit_of,
    words_of,
)
from dplateau.verify import PATIENT_SECONDS

# Where the tables look.
DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
RATES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
_STEPS = 24
# Of how many parts all bounds are shown.
_DETAILED = 6


def report_page(paper: Paper, *, audit: Any = None, name: str = "certificate.json") -> str:
    """Return the page for a certificate or a composition.

    Parameters
    ----------
    paper
        What the page is about.
    audit
        What ``dplateau audit -o`` wrote about the same claim or a part of it, read from JSON.
    name
        The file that holds the paper, as the page names it.

    Raises
    ------
    InvalidInput
        If the audit is about another claim.
    """
    verdict = sign_off(paper.to_dict(), seconds=PATIENT_SECONDS)
    body = "\n".join(
        _tag("section", text, id=title.lower().replace(" ", "-"))
        for title, text in _sections(paper, verdict, _audit_of(paper, audit), name)
    )
    title = f"Privacy report: {paper.headline}"
    return _PAGE.format(title=_escaped(title), style=_STYLE, body=body)


def _sections(
    paper: Paper, verdict: SignOff, audit: dict[str, Any] | None, name: str
) -> Iterator[tuple[str, str]]:
    words = words_of(paper)
    yield "Claim", "".join(_claim(words, verdict))
    if paper.claim is None:
        nobody = _paragraph("Nobody: nothing is claimed.", "warning")
        yield "Neighbors", _tag("h2", "Who is protected") + nobody
    else:
        yield "Neighbors", _tag("h2", "Who is protected") + _paragraph(words.neighbors)
    yield "Released", _tag("h2", "What was released") + _released(words)
    if paper.claim is not None:
        yield "Assumptions", "".join(_assumptions(verdict))
        yield "Attack", "".join(_attack(paper))
        yield "Delta", "".join(_over_delta(paper))
        if isinstance(paper, Certificate):
            yield "Bounds", "".join(_bounds(paper, "h2"))
            yield "Steps", "".join(_over_steps(paper, "h2"))
        else:
            yield "Parts", "".join(_parts(paper))
            yield from _each_part(paper)
    if audit is not None:
        yield "Audit", "".join(_audit(paper, audit))
    yield "Verify", "".join(_verify(paper, verdict, name))
    if paper.claim is not None:
        yield "Cite", _tag("h2", "What to cite") + _tag("pre", _escaped(_citations(paper)))


# --- the sections -------------------------------------------------------------------------------


def _claim(words: Words, verdict: SignOff) -> Iterator[str]:
    yield _tag("h1", "Privacy report")
    state = "verified" if verdict.ok else "not verified"
    seal = _tag("span", state, cls="good" if verdict.ok else "bad")
    yield f'<p class="claim">{_escaped(words.headline)} {seal}</p>'
    if verdict.problem is not None:
        yield _paragraph(f"Problem: {verdict.problem}", cls="warning")
    yield _paragraph(words.sentence)
    if words.attack is not None:
        yield _paragraph(str(words.attack))
    for doubt in words.doubts:
        yield _paragraph(f"Take note: {doubt}", cls="warning")
    yield _paragraph(f"Made {verdict.made}.", cls="quiet")


def _released(words: Words) -> str:
    first, *parts = words.released
    return _paragraph(first) + _listed(parts)


def _listed(lines: Sequence[str]) -> str:
    """Return lines as a list; those behind a dash are a list in the line before them."""
    items: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("- "):
            items[-1][1].append(line[2:])
        else:
            items.append((line, []))
    inner = "".join(_tag("li", _escaped(text) + _listed(below)) for text, below in items)
    return _tag("ul", inner) if items else ""


def _assumptions(verdict: SignOff) -> Iterator[str]:
    yield _tag("h2", "What the claim rests on")
    yield _paragraph(
        "Every line has to be true. No computation can tell whether the declared ones are: for "
        "each of them ask who answers for it."
    )
    for who, texts in verdict.assumptions:
        items = "".join(_tag("li", _escaped(text)) for text in texts)
        yield _tag("h3", _escaped(who)) + _tag("ul", items)


def _attack(paper: Paper) -> Iterator[str]:
    yield _tag("h2", "What an attacker can gain")
    unit = unit_of(paper)
    yield _paragraph(
        "The attacker knows all other records and the method, sees all that was released, and "
        f"decides whether a {unit} was used. The table bounds every such attack, whatever it "
        "computes and however long."
    )
    yield _picture(lambda: TradeoffDisplay.from_certificate(paper), "trade-off curve")
    rows = [(_share(rate), _found(paper, rate)) for rate in RATES]
    marked = RATES.index(FALSE_ALARMS)
    yield _table(
        ("false alarms", f"{_plural(unit)} found, at most"), rows, marked=marked, cls="pairs"
    )


def _found(paper: Paper, rate: float) -> str:
    return percent(min(1.0, math.nextafter(1.0 - paper.tradeoff(rate), math.inf)))


def _plural(unit: str) -> str:
    first, *rest = unit.split(" ", 1)
    return " ".join([f"{first}s", *rest])


def _share(rate: float) -> str:
    return f"{100 * rate:g} percent"


def _over_delta(paper: Paper) -> Iterator[str]:
    yield _tag("h2", "Epsilon over delta")
    yield _paragraph("The same proof at other deltas: all of these hold at once.")
    yield _picture(lambda: EpsilonOverDeltaDisplay.from_certificate(paper), "epsilon over delta")
    deltas = sorted({*DELTAS, paper.claimed_delta}, reverse=True)
    rows = [(rounded_up(delta), _epsilon(paper, delta)) for delta in deltas]
    marked = deltas.index(paper.claimed_delta)
    yield _table(("delta", "epsilon"), rows, marked=marked, cls="pairs")


def _epsilon(paper: Paper, delta: float) -> str:
    try:
        epsilon = paper.epsilon(delta)
        return rounded_up(epsilon) if math.isfinite(epsilon) else "no finite one"
    except DplateauError:
        return "no finite one"


def _bounds(certificate: Certificate, heading: str) -> Iterator[str]:
    yield _tag(heading, "Every bound that says something about this run")
    rows: list[tuple[str, ...]] = []
    marked, refused, least = None, 0, math.inf
    for row in compare(certificate.run, certificate.claimed_delta).rows:
        if row.epsilon is None:
            refused += 1
            continue
        if row.bound == certificate.bound:
            marked = len(rows)
        least = min(least, row.epsilon)
        state = "hidden" if row.hidden_state else "released"
        rows.append((row.title, rounded_up(row.epsilon), state, row.citation))
    smallest = certificate.claimed_epsilon <= least
    yield _paragraph(
        f"{'The claim is the smallest of these.' if smallest else 'A smaller claim is proved too.'}"
        " Bounds about a hidden state hold if only what is named above was released; the others "
        "hold even if every iterate was."
    )
    head = ("bound", f"epsilon at delta {rounded_up(certificate.claimed_delta)}", "state", "source")
    yield _table(head, rows, marked=marked)
    if refused:
        more = counted(refused, "more bound says", "more bounds say")
        yield _paragraph(f"{more} nothing about it; 'dplateau compare --all' says why.", "quiet")


def _over_steps(certificate: Certificate, heading: str) -> Iterator[str]:
    yield _tag(heading, "Epsilon over the number of steps")
    run = certificate.run
    if certificate.claimed_delta == 0:
        yield _paragraph("Not shown: it is computed for a delta above 0 only.", cls="quiet")
        return
    try:
        steps = step_counts(run, _shortest(run), max(10 * run.steps, 100), _STEPS)
        steps = np.unique([*steps.tolist(), run.steps])
        wanted = [b for b in candidates(run) if b.sound]
        curve = epsilon_over_steps(run, certificate.claimed_delta, steps, bounds=wanted)
    except DplateauError as reason:
        yield _paragraph(f"Not shown: {reason}", cls="quiet")
        return
    yield _picture(lambda: EpsilonOverStepsDisplay.from_curve(curve), "epsilon over steps")
    shown = [i for i in range(len(steps)) if i % 3 == 0 or int(steps[i]) == run.steps]
    rows = [(f"{int(steps[i]):,}", rounded_up(float(curve.best[i]))) for i in shown]
    marked = next(at for at, i in enumerate(shown) if int(steps[i]) == run.steps)
    yield _table(("steps", "epsilon"), rows, marked=marked, cls="pairs")


def _shortest(run: Run) -> int:
    """Return the least number of steps of a run whose averages and checkpoints are the same."""
    match run.release:
        case Checkpoints(at=at, last=last):
            return max(run.average_last, last or 1, at[-1] if at else 1)
        case _:
            return run.average_last


def _each_part(paper: Composition) -> Iterator[tuple[str, str]]:
    """Yield a section for each proof that the claim is made of, the same ones once."""
    proofs = proofs_in(paper)
    for place, proof in enumerate(proofs[:_DETAILED], 1):
        name = proof.name_of_part or in_short(proof.run, length=True).partition(";")[0]
        section = [_tag("h2", f"Proof {place}: {_escaped(name)}"), *_bounds(proof, "h3")]
        # What is released once has no number of steps that one could have chosen.
        if proof.run.steps > 1:
            section += _over_steps(proof, "h3")
        yield f"Proof {place}", "".join(section)
    if len(proofs) > _DETAILED:
        left = counted(len(proofs) - _DETAILED, "more proof is", "more proofs are")
        text = f"{left} not shown; 'dplateau compare' lists the bounds of any run."
        yield "Further proofs", _paragraph(text, cls="quiet")


def _parts(paper: Composition) -> Iterator[str]:
    yield _tag("h2", "The parts")
    where = "the same records" if paper.records == "same" else "disjoint records"
    yield _paragraph(f"All of these were released from {where}; together by {paper.method}.")
    rows = [(*_part(entry.part), str(entry.count)) for entry in paper.entries]
    yield _table(("part", "claim on its own", "rests on", "times"), rows)


def _part(part: Certificate | Composition | ForeignPart) -> tuple[str, str, str]:
    if isinstance(part, ForeignPart):
        return part.name, part.words, "the word of whoever states it"
    if isinstance(part, Composition):
        return (
            f"{counted(part.count, 'release')} by {part.method}",
            part.headline,
            "the proofs of its parts",
        )
    return part.name_of_part or part.run.kind, part.headline, part.theorem.title


def _audit(paper: Paper, content: dict[str, Any]) -> Iterator[str]:
    yield _tag("h2", "Attacked")
    if isinstance(paper, Composition):
        about = Certificate.from_dict(content["certificate"])
        name = about.name_of_part or in_short(about.run, length=True).partition(";")[0]
        yield _paragraph(f"One part of what was released: {name}.")
    yield _paragraph(f"Verdict of the audit: the claim is {content['verdict']}.")
    if content["lower_bound"] is not None:
        least = rounded_down(float(content["lower_bound"]))
        yield _paragraph(f"An exact adversary proves that epsilon is at least {least}.")
    else:
        yield _paragraph(f"No exact adversary is known: {content['no_lower_bound']}")
    if content["trainer"] is not None:
        report = AuditReport.from_dict(content["trainer"])
        yield _tag("pre", _escaped(str(report)))


def _verify(paper: Paper, verdict: SignOff, name: str) -> Iterator[str]:
    yield _tag("h2", "How to verify this")
    yield _paragraph(
        "Install the library and run the line below on the certificate itself. It re-derives the "
        "claim with code that shares nothing with the code that made it, and ends with exit code 0 "
        "only if everything holds. 'dplateau explain' prints the theorem. This page proves nothing "
        "and no hash guards it: the certificate decides, and 'dplateau report' makes the page anew."
    )
    told = ("verify", "explain", "report")
    commands = "\n".join(["pip install dplateau", *(f"dplateau {word} {name}" for word in told)])
    yield _tag("pre", _escaped(commands))
    yield _table(
        ("file", "SHA-256"),
        [
            (f"{name} (digest of its content)", paper.to_dict()["digest"]),
            *paper.files.items(),
        ],
        cls="hashes",
    )
    yield _tag("h3", "What was examined when this page was made")
    rows = [
        ("holds" if check.ok else "FAILS", check.name, check.detail)
        for check in verdict.deciding_checks
    ]
    yield _table(("result", "check", "seen"), rows)
    yield _paragraph(f"{verdict.count_of_checks}; 'dplateau verify --all' lists them.", "quiet")


def _citations(paper: Paper) -> str:
    citations = dict.fromkeys(certificate.citation() for certificate in certificates_in(paper))
    return "\n\n".join(citations) or "(every part is accounted for elsewhere)"


# --- the audit ----------------------------------------------------------------------------------


def _audit_of(paper: Paper, audit: Any) -> dict[str, Any] | None:
    if audit is None:
        return None
    content = open_sealed(audit, AUDIT).content
    said, least = content["certificate"], content["lower_bound"]
    about = said.get("content") if isinstance(said, dict) else None
    if about not in [one.to_dict()["content"] for one in (paper, *certificates_in(paper))]:
        raise InvalidInput("the audit is about another claim than the certificate's")
    # The page repeats these, and a digest that fits says nothing about what they are.
    if content["verdict"] not in ("violated", "not violated"):
        raise InvalidInput("not an audit: its verdict must be 'violated' or 'not violated'")
    if least is not None and not (isinstance(least, float | int) and least >= 0):
        raise InvalidInput("not an audit: its lower bound must be a number, 0 or above, or null")
    return content


# --- HTML ---------------------------------------------------------------------------------------


def _picture(make: Callable[[], Display], what: str) -> str:
    """Return a picture as part of the page, or a sentence that there is none."""
    try:
        require_matplotlib()
    except NotApplicable:
        return _paragraph(
            f"No picture of the {what}: this page was made without Matplotlib "
            "(pip install 'dplateau[plots]'). The table holds the numbers.",
            cls="quiet",
        )
    data = b64encode(make().to_bytes(".svg")).decode("ascii")
    seen = _escaped(f"{what}; the table has its numbers")
    return f'<img alt="{seen}" src="data:image/svg+xml;base64,{data}">'


def _escaped(text: str) -> str:
    """Return a text as HTML that shows it, without characters that turn or hide what follows."""
    return html.escape(printable(text))


def _tag(name: str, inner: str, cls: str | None = None, id: str | None = None) -> str:
    more = "".join(f' {k}="{_escaped(v)}"' for k, v in (("class", cls), ("id", id)) if v)
    return f"<{name}{more}>{inner}</{name}>\n"


def _paragraph(text: str, cls: str | None = None) -> str:
    return _tag("p", _escaped(text), cls)


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    marked: int | None = None,
    cls: str | None = None,
) -> str:
    cells = "".join(f'<th scope="col">{_escaped(text)}</th>' for text in head)
    lines = [f"<thead><tr>{cells}</tr></thead><tbody>"]
    for i, row in enumerate(rows):
        cells = "".join(f"<td>{_escaped(text)}</td>" for text in row)
        lines.append(f'<tr class="marked">{cells}</tr>' if i == marked else f"<tr>{cells}</tr>")
    return _tag("table", "".join([*lines, "</tbody>"]), cls)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""

_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f4f4f2; color: #1c1c1c;
  font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 46rem; margin: 2rem auto; padding: 2.5rem 3rem; background: #fff;
  border: 1px solid #ddd; }
h1 { font-size: 1.1rem; font-weight: 600; margin: 0; color: #555; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; color: #444; }
.claim { font-size: 1.9rem; font-weight: 650; margin: .2rem 0 1rem; line-height: 1.25; }
.good, .bad { font-size: .85rem; font-weight: 600; padding: .2rem .6rem; border-radius: 1rem;
  vertical-align: middle; white-space: nowrap; }
.good { color: #0a5c36; background: #dcf3e6; }
.bad { color: #fff; background: #b3261e; }
.warning { border-left: 4px solid #d55e00; padding: .4rem .8rem; background: #fdf3ec; }
.quiet { color: #666; font-size: .9rem; }
ul { margin: .2rem 0; padding-left: 1.2rem; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid #e4e4e4; }
.pairs { width: auto; margin-left: auto; margin-right: auto; }
.pairs th, .pairs td { min-width: 9rem; text-align: right; padding-left: 1rem; }
th { color: #555; font-weight: 600; }
tr.marked td { font-weight: 650; background: #eef5fb; }
.hashes td { font-family: ui-monospace, Consolas, monospace; font-size: .78rem;
  overflow-wrap: anywhere; }
pre { background: #f6f6f4; border: 1px solid #e4e4e4; padding: .7rem .9rem; font-size: .82rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; max-height: 30rem; margin: .8rem auto; }
@media (max-width: 40rem) { main { margin: 0; padding: 1.2rem; border: 0; } }
@media print {
  @page { margin: 18mm 16mm; }
  body { background: #fff; font-size: 10.5pt; }
  main { max-width: none; margin: 0; padding: 0; border: 0; }
  h2 { margin-top: 1.4rem; }
  h2, h3, thead, h2 + p { break-after: avoid; }
  img { max-height: 8.2cm; margin: .3rem auto; }
  table { font-size: 9pt; margin: .3rem 0; }
  th, td { padding: .12rem .5rem .12rem 0; }
  h2, h3, img, tr, pre, li, .warning { break-inside: avoid; }
  .good, .bad, tr.marked td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
