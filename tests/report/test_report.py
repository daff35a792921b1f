"""What a privacy officer reads: the words, the explanation, the sign-off and the page."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import norm

from catalogue import RUNS
from dplateau import (
    Certificate,
    Checkpoints,
    Composition,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    certify,
    certify_mixing,
    compose,
    foreign,
)
from dplateau.algorithms import Ball, Run
from dplateau.audit.against_claims import findings_against
from dplateau.bounds.registry import BOUNDS, HISTORICAL
from dplateau.certificates.certify import assumptions_of
from dplateau.cli import main
from dplateau.curves import GaussianCurve
from dplateau.ground.sealed import resealed
from dplateau.ground.shown import rounded_up
from dplateau.report import Paper, explain, report_page, sign_off, words_of
from dplateau.report.explanation import note_text, statement_of
from dplateau.report.words import MATTERS_MOST, certificates_in, most_important
from forging import changed, forged

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
DELTA = 1e-5
# Hidden iterates, on which the claim rests.
HIDDEN = certify(
    NoisyGD(n=500, steps=90, learning_rate=0.5, l2=0.1, noise_std=0.05, loss=LOSS, release="last"),
    DELTA,
)
# Only the last iterate leaves, but composition covers all of them.
COVERED = certify(NoisyGD(n=500, steps=4, noise_multiplier=4.0, release="last"), DELTA)
QUERY = foreign(epsilon=0.5, delta=1e-6, neighbors="add_remove", name="a query")
BOTH = compose([HIDDEN, COVERED, COVERED, QUERY], DELTA)
ONLY_LAST = "only the last iterate leaves; no metric, log or callback before"
PAPERS: dict[str, Paper] = {"hidden": HIDDEN, "covered": COVERED, "both": BOTH}


# --- in plain words -----------------------------------------------------------------------------


def test_attacks_are_read_off_the_curve() -> None:
    exact = GaussianCurve(1.0)
    one = certify(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), DELTA)
    found = words_of(one).attack
    assert found is not None
    assert found.true_positives == pytest.approx(1 - exact.tradeoff(0.01), rel=1e-9)
    # 2 Phi(mu / 2) - 1, the total variation of two unit normal laws a distance of 1 apart.
    assert found.advantage == pytest.approx(math.erf(0.5 / math.sqrt(2)), rel=1e-9)
    shown = [float(number) for number in re.findall(r"at most ([0-9.]+) percent", str(found))]
    assert shown[0] >= 100 * found.true_positives
    assert shown[1] >= 100 * found.advantage


def test_neighbors_are_always_stated() -> None:
    replaced = certify(COVERED.run.replace(neighbors="replace"), DELTA)
    assert "exchanged for any other" in words_of(replaced).neighbors
    assert "in one of them and not in the other" in words_of(BOTH).neighbors
    three = certify(COVERED.run, DELTA, group_size=3)
    assert "one group of 3 records" in words_of(three).neighbors
    assert words_of(COVERED).neighbors in report_page(COVERED)
    assert words_of(BOTH).neighbors in report_page(BOTH)
    for paper in (replaced, three, *PAPERS.values()):
        words = words_of(paper)
        assert words.neighbors.split(",")[0] in " ".join(explain(paper).split())
        assert words.neighbors.split(",")[0] in " ".join(str(sign_off(paper.to_dict())).split())


def test_hiding_is_an_assumption_of_those_claims_only_that_need_it() -> None:
    assert not COVERED.theorem.hidden_state
    assert ONLY_LAST in {a.text for a in HIDDEN.assumptions}
    assert ONLY_LAST not in {a.text for a in COVERED.assumptions}
    for text in (explain(COVERED), report_page(COVERED), str(sign_off(COVERED.to_dict()))):
        assert ONLY_LAST not in text
        assert "hold if every iterate had left as well" in " ".join(text.split())


def test_a_random_stop_and_released_iterates_are_said() -> None:
    run = OnePassSGD(n=30, learning_rate=0.5, noise_multiplier=2.0, loss=LOSS, release="last")
    stopped = certify(run.replace(release="random_stop"), DELTA)
    assert "one uniformly random step" in words_of(stopped).released[0]
    shown = certify(COVERED.run.replace(release="all"), DELTA)
    assert words_of(shown).released[0].startswith("Every iterate of")


def test_an_average_of_iterates_and_momentum_are_said() -> None:
    run = NoisyGD(
        n=500,
        steps=90,
        learning_rate=0.5,
        momentum=0.9,
        average_last=30,
        noise_std=0.05,
        loss=LOSS,
        release="last",
    )
    (said,) = words_of(certify(run, DELTA)).released
    assert said.startswith(
        "Only the average of the last 30 iterates of Noisy GD, n = 500, 90 steps"
    )
    assert "momentum 0.9" in said


def test_parts_of_parts_are_a_list_of_their_own() -> None:
    part = HIDDEN.named("the first model")
    inner = compose([part, COVERED], DELTA)
    page = report_page(compose([inner, COVERED], DELTA, records="disjoint"))
    assert "<li>- " not in page
    assert "2 releases from the same records:<ul>" in page
    assert "<td>the first model</td>" in report_page(compose([part, QUERY], DELTA))


def test_one_step_over_all_records_is_one_average() -> None:
    """A sum with noise is no training, and a part that has a name is called by it."""
    paper = certify(NoisyGD(n=9, steps=1, noise_multiplier=9.0, release="last"), 1e-5)
    (said,) = words_of(paper).released
    assert said == "One sum over 9 records, divided by 9, with Gaussian noise, noise multiplier 9."
    (said,) = words_of(paper.named("the noisy mean")).released
    assert said.startswith("The noisy mean. One sum over 9 records")


def test_the_numbers_that_were_declared_are_said() -> None:
    (said,) = words_of(HIDDEN).released
    assert "Declared of each record: Lipschitz constant 1, smoothness 0.25." in said
    assert "Declared" not in words_of(COVERED).released[0]


def test_a_group_is_what_an_attack_looks_for() -> None:
    three = certify(COVERED.run.replace(neighbors="replace", group_size=3), DELTA)
    words = words_of(three)
    assert "finds a group of 3 records in at most" in str(words.attack)
    assert "up to 3 records replaced" in words.released[0]
    assert "groups of 3 records found, at most" in report_page(three)


def test_the_sentence_is_differential_privacy_and_no_more() -> None:
    """Outcomes beyond the factor may be far likelier than delta: the text must not limit them."""
    mu = 4**0.5 / 2.0
    claim = certify(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), DELTA)
    beyond = norm.cdf(mu / 2 - claim.claimed_epsilon / mu)
    assert beyond > 4 * DELTA
    factor = rounded_up(math.exp(claim.claimed_epsilon), 3)
    said = f"every event is at most {factor} times as likely (e^epsilon, epsilon = "
    assert said in words_of(claim).sentence
    assert words_of(claim).sentence.endswith(
        "), plus 1e-05 (delta), with it as without it, and the other way round."
    )
    replaced = certify(claim.run.replace(neighbors="replace"), DELTA)
    assert "with it as with any other in its place" in words_of(replaced).sentence


def test_a_claim_without_delta_has_none_in_its_sentence() -> None:
    once = NoisyGD(
        n=9, steps=1, noise_multiplier=9.0, noise_kind="laplace", dimension=1, release="all"
    )
    pure = certify(once, 0.0)
    assert "Laplace noise, fresh and independent at every step" in report_page(pure)
    assert "delta" not in words_of(pure).sentence
    assert "computed for a delta above 0 only" in report_page(pure)


def test_checkpoints_leave_what_follows_from_them() -> None:
    run = HIDDEN.run.replace(release=Checkpoints(last=5))
    assert "or what follows from these alone" in words_of(certify(run, DELTA)).released[0]


@pytest.mark.parametrize(
    "run",
    [
        HIDDEN.run.replace(average_last=30),
        HIDDEN.run.replace(release=Checkpoints(last=40)),
        HIDDEN.run.replace(release=Checkpoints(at=[50, 70])),
    ],
    ids=["average", "last", "at"],
)
def test_runs_that_need_some_steps_are_shown_from_there_on(run: Run) -> None:
    text = report_page(certify(run, DELTA))
    assert "Not shown" not in text
    assert '<tr class="marked"><td>90</td>' in text


def test_a_claim_that_is_not_the_smallest_does_not_say_so() -> None:
    naive = certify(COVERED.run, DELTA, bounds=[b for b in BOUNDS if b.name == "naive_composition"])
    assert naive.claimed_epsilon > COVERED.claimed_epsilon
    assert "A smaller claim is proved too." in report_page(naive)
    assert "The claim is the smallest of these." in report_page(COVERED)


def test_weak_claims_are_named() -> None:
    large = certify(NoisyGD(n=500, steps=400, noise_multiplier=1.0, release="all"), 0.01)
    found = words_of(large).doubts
    assert len(found) == 2
    assert all(doubt.split(";")[0].split(":")[0] in report_page(large) for doubt in found)


def test_assumptions_that_matter_most_are_those_of_real_claims() -> None:
    stated = {
        assumption.text
        for run in (*RUNS.values(), COVERED.run.replace(group_size=3))
        for bound in BOUNDS
        if bound.refusal(run) is None
        for assumption in assumptions_of(run, bound)
    }
    unknown = [s for s in MATTERS_MOST if not any(text.startswith(s) for text in stated)]
    assert unknown == []
    first, *rest = most_important(HIDDEN.assumptions)
    assert first.text == ONLY_LAST
    assert set(rest) | {first} == set(HIDDEN.assumptions)


def test_factors_beyond_every_number_are_powers() -> None:
    large = certify(NoisyGD(n=500, steps=4000, noise_multiplier=1.0, release="all"), DELTA)
    assert large.claimed_epsilon > 710
    assert f"at most e^{rounded_up(large.claimed_epsilon)} times" in words_of(large).sentence


def test_counts_of_files_are_not_made_into_lists() -> None:
    """A small file took 8 GB to be described, and one with more zeros all that there was."""
    document = json.loads(BOTH.to_json())
    document["content"]["parts"][0]["count"] = 10**300
    many = Composition.from_dict(resealed(document))
    assert many.count > 10**300 - 1
    assert words_of(many, attack=False).released[0].startswith("1000000")
    assert not sign_off(many.to_dict()).ok


# --- explained ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [*BOUNDS, *HISTORICAL], ids=lambda bound: bound.name)
def test_every_bound_has_a_statement_that_is_not_its_proof(bound: Any) -> None:
    note, statement = note_text(bound.note), statement_of(bound)
    assert f"`{bound.name}`" in statement
    assert len(statement) > 300
    assert not re.search(r"^#+ Proof", statement, re.MULTILINE) or statement == note.strip()


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_an_explanation_has_all_its_parts(paper: Paper) -> None:
    text = explain(paper)
    assert text.startswith(f"Claim\n-----\n{str(paper).split(' by ')[0]}")
    heads = ("Neighbors", "What left", "Vouched for by", "Why: ", "How to check it by hand")
    places = [text.index(head) for head in heads]
    assert places == sorted(places)
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("  |"))
    for assumption in paper.assumptions:
        assert assumption.text in " ".join(text.split())
    # What is put into the statement by hand is all there.
    by_hand = text.partition("How to check it by hand")[2]
    for certificate in certificates_in(paper):
        assert f"    n = {certificate.run.n}\n" in by_hand
        assert all(re.search(rf"^    {name}[ .]", by_hand, re.M) for name in certificate.witness)


def test_a_mixing_certificate_is_explained_too() -> None:
    chain = ProjectedLangevin(
        steps=1, learning_rate=0.01, loss=LOSS, domain=Ball(1.0), release="last"
    )
    text = explain(certify_mixing(chain, tv=0.1))
    assert "## Statement" in text
    assert "blocks = " in text


def test_a_mixing_certificate_is_signed_off_as_what_it_is() -> None:
    chain = ProjectedLangevin(
        steps=1, learning_rate=0.01, loss=LOSS, domain=Ball(1.0), release="last"
    )
    paper = certify_mixing(chain, tv=0.1)
    page = sign_off(paper.to_dict())
    assert page.ok
    text = " ".join(str(page).split())
    assert str(paper) in text
    assert "it protects no record" in text
    assert page.to_dict()["claim"] == str(paper)


# --- signed off ---------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_the_verdict_comes_first_and_everything_is_listed(paper: Paper) -> None:
    page = sign_off(paper.to_dict())
    assert page.ok
    text = str(page)
    assert text.startswith("VERIFIED: epsilon ")
    assert float(text.split()[2]) >= paper.claimed_epsilon
    for assumption in paper.assumptions:
        assert assumption.text in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 88
    whole = page.page(every_check=True)
    assert whole.count("\n  ok ") >= len(page.verification.checks)
    found = json.loads(json.dumps(page.to_dict(), allow_nan=False))
    assert found["ok"] is True
    assert (found["claimed_epsilon"], found["claimed_delta"]) == (paper.claimed_epsilon, DELTA)
    assert found["neighbors"] == words_of(paper).neighbors
    assert sum(map(len, found["assumptions"].values())) == len(paper.assumptions)


def test_an_assumption_left_out_of_a_mixing_certificate_is_a_no() -> None:
    chain = NoisySGD(
        n=100,
        batch_size=10,
        steps=30,
        learning_rate=0.1,
        iterate_std=0.5,
        domain=Ball(1.0),
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
        release="last",
    )
    honest = certify_mixing(chain).to_dict()
    assert sign_off(honest).ok
    stated = honest["content"]["assumptions"]
    for place, gone in enumerate(stated):
        status = "checked" if gone["status"] == "declared" else "declared"
        for instead in ([], [{**gone, "status": status}]):
            page = sign_off(
                forged(honest, assumptions=[*stated[:place], *instead, *stated[place + 1 :]])
            )
            assert page.problem == f"assumptions are stated: it lacks {gone['text']!r}"


def test_what_is_not_proved_is_not_asked_what_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousands of different stretches that took longer than verifying may take."""

    def asked(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(sys.modules["dplateau.report.sign_off"], "assumptions_of", asked)
    page = sign_off(forged(HIDDEN.to_dict(), claimed_epsilon=1e-6))
    assert page.problem is not None
    assert page.problem.startswith("epsilon is proved")
    with pytest.raises(AssertionError, match="asked"):
        sign_off(HIDDEN.to_dict())


def test_an_assumption_left_out_is_a_no() -> None:
    stated = HIDDEN.to_dict()["content"]["assumptions"]
    for place, gone in enumerate(stated):
        silent = forged(HIDDEN.to_dict(), assumptions=[*stated[:place], *stated[place + 1 :]])
        page = sign_off(silent)
        assert not page.ok
        assert page.problem == f"assumptions are stated: it lacks {gone['text']!r}"
        assert str(page).startswith("NOT VERIFIED: epsilon ")


def test_a_part_declared_elsewhere_must_be_among_the_assumptions() -> None:
    found = BOTH.to_dict()
    assert sign_off(found).ok
    stated = found["content"]["assumptions"]
    silent = [one for one in stated if "a query" not in one["text"]]
    assert len(silent) == len(stated) - 1
    page = sign_off(forged(found, assumptions=silent))
    assert not page.ok
    assert page.problem is not None
    assert "it must state what its parts rest on" in page.problem


def test_files_beside_the_paper_are_compared(tmp_path: Path) -> None:
    about = HIDDEN.with_files({"model.json": b"weights", "../elsewhere": b"x"}).to_dict()
    assert dict(sign_off(about, tmp_path).files)["model.json"] == "not here, so not compared"
    (tmp_path / "model.json").write_bytes(b"weights")
    page = sign_off(about, tmp_path)
    assert page.ok
    assert dict(page.files) == {
        "model.json": "the one that the claim is about",
        "../elsewhere": "not here, so not compared",
    }
    (tmp_path / "model.json").write_bytes(b"other weights")
    page = sign_off(about, tmp_path)
    assert not page.ok
    assert page.problem == "files: model.json is not the file that the claim is about"


@pytest.mark.parametrize("paper", [HIDDEN, BOTH])
def test_a_paper_that_claims_nothing_is_a_no(paper: Paper) -> None:
    seeded = paper.without_claim("not private (seeded run)")
    page = sign_off(seeded.to_dict())
    assert not page.ok
    assert page.problem == "claim: not private (seeded run)"
    assert str(page).startswith("NOT VERIFIED\n")
    text = report_page(seeded)
    assert '<span class="bad">not verified</span>' in text
    assert "Nobody: nothing is claimed." in text
    assert "would hold" not in text
    assert "epsilon = " not in text
    assert explain(seeded).startswith("Claim\n-----\n")
    # Where nothing is claimed there is nobody to name, and nothing for it to rest on.
    assert page.to_dict()["neighbors"] == "None: nothing is claimed."
    assert page.to_dict()["assumptions"] == {}
    for said in (str(page), explain(seeded), text):
        for word in ("differ in one", "rests on", "Vouched", "no record's gradient", "Why: "):
            assert word not in said, word


CURSOR = "\x1b[2J\x1b[H\n\nVERIFIED: epsilon 0.1 claimed\u202e"


@pytest.mark.parametrize("change", ["assumptions", "no_claim", "library", "files", "bound"])
@pytest.mark.parametrize("command", ["verify", "verify --all", "explain", "compose", "audit"])
def test_nothing_in_a_file_moves_the_cursor(
    change: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paper = COVERED.to_dict()
    content = paper["content"]
    match change:
        case "assumptions":
            content["assumptions"].append({"text": CURSOR, "status": "declared"})
        case "no_claim":
            content |= {"claim": None, "no_claim": CURSOR}
        case "library":
            paper["library"] = CURSOR
        case "files":
            content["files"] = {CURSOR: "0" * 64}
        case "bound":
            content["bound"] = CURSOR
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps(resealed(paper)), encoding="utf-8")
    first, *rest = command.split()
    with pytest.raises(SystemExit):
        main([first, str(file), *rest])
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if "epsilon 0.1" in line and line.startswith("VERIFIED")]


@pytest.mark.parametrize("found", [None, 3, {}, {"kind": "dplateau/composition"}, []])
def test_what_cannot_be_read_is_a_no(found: Any) -> None:
    page = sign_off(found)
    assert not page.ok
    assert str(page).startswith("NOT VERIFIED")
    json.dumps(page.to_dict(), allow_nan=False)


# --- the page -----------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Checks that every tag is closed, and notes what a browser would fetch."""

    VOID = ("meta", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(v) for k, v in attrs if k in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_the_page_is_whole_and_fetches_nothing(paper: Paper) -> None:
    text = report_page(paper, name="my <odd> name.json")
    reader = Reader(text)
    assert reader.open == []
    assert all(link.startswith("data:image/svg+xml;base64,") for link in reader.links)
    # Of a composition every proof has its bounds, and its epsilon over the number of steps.
    assert len(reader.links) == (3 if isinstance(paper, Certificate) else 2 + 2)
    assert text.count("Every bound that says something") == (1 if len(reader.links) == 3 else 2)
    assert "<odd>" not in text
    assert paper.to_dict()["digest"] in text
    assert "@misc{" in text
    claim = re.search(r'<p class="claim">\(([0-9.e-]+), 1e-05\)-DP', text)
    assert claim is not None
    assert float(claim[1]) >= paper.claimed_epsilon


def test_no_name_in_a_file_turns_what_stands_behind_it() -> None:
    """Behind a mark for writing from right to left an epsilon of 0.1 reads 1.0."""
    name = "<b>a\u202ecount\u2066\x1b[31m\u200b"
    query = foreign(epsilon=0.1, delta=1e-6, neighbors="add_remove", name=name)
    text = report_page(compose([COVERED, query], DELTA), name=f"{name}.json")
    assert "&lt;b&gt;a\\u202ecount" in text
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "<b>" not in text


def test_the_same_paper_gives_the_same_page() -> None:
    assert report_page(COVERED) == report_page(COVERED)


def test_an_audit_is_told_and_must_be_about_the_claim() -> None:
    found = findings_against(HIDDEN, HIDDEN.verify(), effort="quick").to_dict()
    text = report_page(HIDDEN, audit=found)
    assert "the claim is not violated" in text
    shown = re.search(r"epsilon is at least ([0-9.e-]+)\.<", text)
    assert shown is not None
    assert float(shown[1]) <= found["content"]["lower_bound"]
    with pytest.raises(InvalidInput, match="about another claim"):
        report_page(COVERED, audit=found)
    with pytest.raises(InvalidInput, match="altered"):
        report_page(HIDDEN, audit=changed(found, verdict="violated"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"certificate": None}, "about another claim"),
        ({"certificate": ["x"]}, "about another claim"),
        ({"verdict": "perfect"}, "its verdict must be"),
        ({"lower_bound": "x"}, "its lower bound must be a number"),
        ({"lower_bound": []}, "its lower bound must be a number"),
        ({"lower_bound": -1.0}, "its lower bound must be a number"),
    ],
)
def test_a_sealed_audit_that_is_none_is_refused(change: dict[str, Any], reason: str) -> None:
    found = findings_against(COVERED, COVERED.verify(), effort="quick").to_dict()
    forged_audit = resealed({**found, "content": {**found["content"], **change}})
    with pytest.raises(InvalidInput, match=reason):
        report_page(COVERED, audit=forged_audit)


def test_an_audit_of_a_part_is_told_as_that() -> None:
    found = findings_against(COVERED, COVERED.verify(), effort="quick").to_dict()
    text = report_page(BOTH, audit=found)
    assert "One part of what was released: Noisy GD, n = 500, 4 steps" in text
    assert "the claim is not violated" in text
    with pytest.raises(InvalidInput, match="about another claim"):
        report_page(compose([HIDDEN, QUERY], DELTA), audit=found)


def test_parts_of_a_composition_are_attacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, found = tmp_path / "certificate.json", tmp_path / "audit.json"
    place.write_text(compose([BOTH, COVERED], DELTA).to_json(), encoding="utf-8")
    assert called("audit", place) == 2
    assert "holds several releases; say --part 1 and so on: 1 (" in capsys.readouterr().err
    assert called("audit", place, "--part", 3) == 2
    assert called("audit", place, "--part", 2, "--effort", "quick", "-o", found) == 0
    assert "not violated" in capsys.readouterr().out
    assert called("report", place, "--audit", found, "-o", tmp_path / "page.html") == 0
    place.write_text(COVERED.to_json(), encoding="utf-8")
    assert called("audit", place, "--part", 1) == 2
    place.write_text(BOTH.without_claim("not private").to_json(), encoding="utf-8")
    assert called("audit", place, "--part", 1) == 1
    assert "claim: not private" in capsys.readouterr().out


def test_without_matplotlib_there_are_tables_and_the_page_says_so(tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_text(COVERED.to_json(), encoding="utf-8")
    script = (
        "import sys; sys.modules['matplotlib'] = None; from dplateau.cli import main; "
        "main(['report', 'certificate.json'])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "report written to report.html\n", "")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("made without Matplotlib") == 3
    assert "records found, at most" in text


# --- the commands -------------------------------------------------------------------------------


def called(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "certificate.json"
    place.write_text(BOTH.to_json(), encoding="utf-8")
    assert Composition.from_json(place.read_text(encoding="utf-8")) == BOTH
    assert called("verify", place) == 0
    assert capsys.readouterr().out == f"{sign_off(BOTH.to_dict())}\n"
    assert called("verify", place, "--all") == 0
    assert len(capsys.readouterr().out.splitlines()) > 40
    assert called("explain", place) == 0
    assert capsys.readouterr().out == explain(BOTH)
    page = tmp_path / "page.html"
    assert called("report", place, "-o", page) == 0
    assert page.read_text(encoding="utf-8") == report_page(BOTH, name=place.name)
    seeded = BOTH.without_claim("not private (seeded run)")
    place.write_text(seeded.to_json(), encoding="utf-8")
    assert called("verify", place) == 1
    assert "not private (seeded run)" in capsys.readouterr().out
    altered = changed(COVERED.to_dict(), claimed_epsilon=0.1)
    place.write_text(json.dumps(altered), encoding="utf-8")
    for command in ("explain", "report"):
        before = page.read_bytes()
        assert called(command, place, *(["-o", page] if command == "report" else [])) == 2
        assert "altered after it was made" in capsys.readouterr().err
        assert page.read_bytes() == before
