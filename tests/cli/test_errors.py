"""Bad input ends with exit code 2 and exactly one line on stderr, never a traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import here, process

GOOD = {
    "n": "100",
    "batch-size": "10",
    "steps": "5",
    "noise-multiplier": "1",
    "release": "all",
    "delta": "1e-5",
}


def sgd(command: str = "account", **changes: str | None) -> list[str]:
    """Return the words of a good command with options replaced, added, or left out (None)."""
    changed = {name.replace("_", "-"): value for name, value in changes.items()}
    words = [command, "sgd"]
    for name, value in {**GOOD, **changed}.items():
        if value is not None:
            words += [f"--{name}", value]
    return words


BAD: list[tuple[list[str], str]] = [
    # missing
    (["account"], "Missing argument"),
    (["account", "sgd"], "Missing option '--delta'"),
    (sgd(n=None), "sgd needs --n, the number of records"),
    (sgd(batch_size=None), "state the batch once: --batch-size or --sampling-rate; got neither"),
    (sgd(steps=None), "state the length once: --steps or --epochs; got neither"),
    (sgd(noise_multiplier=None), "state the noise once: exactly one of"),
    (sgd(release=None), "--release is a promise about what leaves and has no default"),
    (sgd("calibrate"), "Missing option '--epsilon'"),
    (["plan", "--n", "9", "--d", "-3", "--epsilon", "1"], "--d must be at least 1; got -3"),
    (["plan", "--n", "9", "--d", "3", "--epsilon", "1", "--classes", "1"], "--classes must be"),
    (["plan", "--n", "9", "--d", "1e308", "--epsilon", "1"], "--d must be at most 1e+15"),
    (["plan", "--n", "1e300", "--d", "3", "--epsilon", "1"], "--n must be at most 1e+15"),
    (
        ["plan", "--n", "9", "--d", "3", "--epsilon", "1", "--data-norm", "1e-38"],
        "--data-norm must lie between 1e-18 and 1e+18; got 1e-38: use other units",
    ),
    (
        ["ledger", "init", "a.ledger", "--epsilon", "1", "--delta", "1e-5", "--delta-share", "2"],
        "--delta-share must be at least 0 and below 1; got 2",
    ),
    (["mixing", "--learning-rate", "1", "--tv", "0.1", "--steps", "4"], "one of --tv 0.1 and --st"),
    ([*sgd(), "--l2"], "requires an argument"),
    # contradictory
    (sgd(epochs="3"), "state the length once: --steps or --epochs; got both"),
    (sgd(sampling_rate="1.1"), "--sampling-rate must be at most 1"),
    (sgd(noise_std="1"), "got --noise-multiplier and --noise-std"),
    (sgd(sampling="fixed"), "use --neighbors replace, or --sampling poisson"),
    (sgd(lipschitz="1", smoothness="1", strong_convexity="2"), "no function has both"),
    (sgd(diameter="1", radius="1"), "state the domain once"),
    # not finite, out of range, not a number
    (sgd(delta="nan"), "delta must be a real number; got NaN"),
    (
        sgd(delta="0"),
        "no bound gives a finite epsilon at delta = 0: take delta > 0, or",
    ),
    (sgd(delta="1"), "delta must be at least 0 and below 1; got 1"),
    (sgd(delta="-1e-5"), "delta must be at least 0 and below 1"),
    (sgd(delta="tiny"), "Invalid value for '--delta'"),
    (sgd(n="0"), "n must be at least 1; got 0"),
    (sgd(n="-5"), "n must be at least 1; got -5"),
    (sgd(n="1.5"), "Invalid value for '--n'"),
    (sgd(n="1" + "0" * 400), "n is too large"),
    (sgd(batch_size="101"), "--batch-size 101 exceeds --n 100"),
    (sgd(batch_size="nan"), "--batch-size must be a real number; got NaN"),
    (sgd(noise_multiplier="inf"), "--noise-multiplier must be finite and above 0"),
    (sgd(noise_multiplier="-1"), "--noise-multiplier must be finite and above 0; got -1"),
    (sgd(l2="-0.1"), "l2 must be finite and at least 0"),
    (sgd(learning_rate="0"), "--learning-rate must be finite and above 0"),
    (sgd("calibrate", epsilon="0"), "epsilon must be finite and above 0; got 0"),
    (sgd("calibrate", epsilon="inf"), "epsilon must be finite and above 0"),
    (sgd("calibrate", epsilon="0.5", vary="luck"), "vary must be one of 'noise', 'l2'"),
    (sgd("calibrate", epsilon="0.5", vary="learning-rate"), "states no --learning-rate to vary"),
    (sgd("calibrate", epsilon="1e-9", vary="steps"), "even one step exceeds epsilon 1e-09"),
    (sgd(max_records_per_person="1e9"), "--max-records-per-person must be at most 1000000"),
    # unknown
    (["acount"], "No such command 'acount'"),
    (["account", "adam", "--delta", "1e-5"], "'adam' is not one of 'gd', 'sgd'"),
    ([*sgd(), "--sigma", "3"], "No such option: --sigma"),
    ([*sgd(), "extra"], "extra"),
    (sgd(release="final"), "'random-stop', 'checkpoints'; got 'final'"),
    (sgd(neighbors="swap"), "neighbors must be one of 'add-remove', 'replace'"),
    (sgd(sampling="uniform"), "sampling must be one of 'poisson', 'fixed'"),
    # no theorem
    (sgd(release="random-stop"), "no theorem covers --release random-stop for sgd"),
    (
        sgd(noise_kind="laplace"),
        "no theorem covers Laplace noise with a dimension that is unstated",
    ),
    (sgd(noise_multiplier=None, noise_std="1"), "no bound applies"),
    # files
    ([*sgd(), "-o", "no/such/folder.json"], "cannot write no/such/folder.json: there is no folder"),
    ([*sgd(), "-o", "."], "cannot write"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=lambda value: str(value)[:70])
def test_bad_input(words: list[str], message: str, tmp_path: Path) -> None:
    done = here(*words, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.endswith("\n")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("dplateau: ")
    assert message in lines[0]
    # Options, not the fields of the library.
    assert not re.search(r"LossGeometry|Noisy|\w=['\d.]|\b[a-z]+_[a-z]+\b", lines[0])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audit", "c.json", "--trainer", "my_training"], "'my_training' is not module:function"),
        (
            ["reproduce", "conversions", "-o", "a_file.csv"],
            "cannot write to a_file.csv: it is a file",
        ),
        (
            ["train", "a_file.csv", "--epsilon", "1", "--target", "b", "-o", "a_file.csv"],
            "cannot write to a_file.csv: it is a file",
        ),
        (
            ["train", "a_file.csv", "--epsilon", "1", "--target", "b", "-o", "a_file.csv/out"],
            "cannot write to a_file.csv/out: ",
        ),
        (
            ["train", "a_file.csv", "--epsilon", "1", "--target", "a_b"],
            "no column 'a_b' to predict",
        ),
    ],
    ids=lambda value: str(value)[:70],
)
def test_names_of_a_user_stay_as_they_are(words: list[str], message: str, tmp_path: Path) -> None:
    content = "a,b\n1,2\n"
    (tmp_path / "a_file.csv").write_text(content, encoding="utf-8")
    done = here(*words, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("a_file.csv", content)
    ]


def test_the_good_command_is_good(tmp_path: Path) -> None:
    done = here(*sgd(), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("separator", ["é", "½", "\n", "ab", ""])
@pytest.mark.parametrize("option", ["--separator", "--decimal"])
def test_separators_are_single_characters(option: str, separator: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    done = here("schema", "rows.csv", "--target", "b", option, separator, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"{option} must be one ASCII character (or tab)" in done.stderr


def test_a_pipe_is_not_said_to_be_missing(tmp_path: Path) -> None:
    done = here("schema", "/dev/null", "--target", "b", "-o", "s.toml", folder=tmp_path)
    assert done.stderr == (
        "dplateau: cannot read /dev/null: it is no regular file; write it to one\n"
    )


def test_papers_of_another_kind_are_called_by_their_names(tmp_path: Path) -> None:
    assert here(*sgd(), "-o", "c.json", folder=tmp_path).returncode == 0
    done = here("report", "c.json", "--audit", "c.json", folder=tmp_path)
    assert done.stderr == (
        "dplateau: --audit c.json: not an audit: it says that it is 'dplateau/certificate'\n"
    )
    older = {**json.loads((tmp_path / "c.json").read_text()), "format": 1}
    (tmp_path / "old.json").write_text(json.dumps(older), encoding="utf-8")
    done = here("compose", "c.json", "old.json", folder=tmp_path)
    assert done.stderr.startswith("dplateau: old.json: a certificate of format 1; ")


@pytest.mark.parametrize("command", [["verify"], ["explain"], ["ledger", "spend", "a.ledger"]])
def test_a_folder_is_said_to_hold_its_claim(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    here("ledger", "init", "a.ledger", "--epsilon", "1", "--delta", "1e-5", folder=tmp_path)
    (tmp_path / "model" / "certificate.json").write_text("{}", encoding="utf-8")
    done = here(*command, "model", folder=tmp_path)
    said = f"cannot read model: it is a folder, and its claim is in {Path('model')}"
    assert (done.returncode, said in done.stderr) == (2, True)


@pytest.mark.parametrize("seconds", ["tomorrow", "", "-1", "99999999999999999999", "253402300800"])
def test_a_strange_date_is_refused(
    seconds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
    done = process(*sgd(), folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("dplateau: SOURCE_DATE_EPOCH must be a whole number of seconds")
    assert done.stderr.count("\n") == 1


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    assert here(*sgd(), "-o", "c.json", folder=tmp_path).returncode == 0
    content = (tmp_path / "c.json").read_bytes()
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + content)
    assert here("verify", "marked.json", folder=tmp_path).returncode == 0


def test_checkpoints_are_written_as_other_numbers_are(tmp_path: Path) -> None:
    steps = sgd(steps="2e3", release="checkpoints", at="1e3,2_000")
    assert here(*steps, folder=tmp_path).returncode == 0


@pytest.mark.parametrize("words", [["account", "sgd"], sgd(delta="nan"), sgd("calibrate", l2="x")])
def test_a_process_ends_as_its_command_does(words: list[str], tmp_path: Path) -> None:
    assert process(*words, folder=tmp_path).stderr == here(*words, folder=tmp_path).stderr
    assert process(*words, folder=tmp_path).returncode == 2


@pytest.mark.parametrize("name", ["x" * 300, "loop", "folder", "noise"])
@pytest.mark.parametrize(
    "command", ["verify", "explain", "report", "schema", "train --epsilon 1", "ledger show"]
)
def test_what_is_no_file_of_ours_is_one_line(command: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    done = here(*command.split(), name, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_errors_of_the_parser_point_to_help(tmp_path: Path) -> None:
    done = here("account", "sgd", folder=tmp_path)
    assert done.stderr.rstrip().endswith("see 'dplateau account --help'")


def test_faults_of_the_library_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only refusals become one line; a bug must stay visible."""
    from dplateau import cli
    from dplateau.cli import commands

    def broken(**_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(commands, "app", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        cli.main(["account"])


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, EOFError])
def test_interruptions_end_quietly(
    interruption: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from dplateau import cli
    from dplateau.cli import commands

    def stopped(**_: object) -> None:
        raise interruption

    monkeypatch.setattr(commands, "app", stopped)
    with pytest.raises(SystemExit, match="130"):
        cli.main(["account"])
    assert capsys.readouterr().err == "dplateau: interrupted; nothing was written\n"


def test_an_interruption_that_compiled_code_turned_into_its_own_error_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dplateau import cli
    from dplateau.cli import commands

    def stopped(**_: object) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(commands, "app", stopped)
    with pytest.raises(SystemExit, match="130"):
        cli.main(["account"])
    assert capsys.readouterr().err == "dplateau: interrupted; nothing was written\n"


# Presses Ctrl-C when a module is looked for, and then lets the command go on as a user's would.
PRESSED = """
import os, signal, sys
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
from dplateau.cli import main
main({words!r})
"""


@pytest.mark.parametrize("module", ["typer", "dplateau.cli.train", "scipy", "dplateau.bounds"])
def test_an_interruption_while_modules_load_is_said(module: str, tmp_path: Path) -> None:
    words = [*sgd(), "-o", "certificate.json"]
    command = [sys.executable, "-c", PRESSED.format(module=module, words=words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 130
    assert done.stderr == "dplateau: interrupted; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_says_what_was_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dplateau.cli import show

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "show_answer", stopped)
    done = here(*sgd(), "-o", "certificate.json", folder=tmp_path)
    assert done.returncode == 130
    assert done.stderr == "dplateau: interrupted; written before: certificate.json\n"


# --- numbers that nobody would mean --------------------------------------------------------------


@pytest.mark.parametrize("noise", ["1e-200", "1e-300"])
@pytest.mark.parametrize("algorithm", ["gd", "sgd", "cyclic", "one-pass"])
def test_next_to_no_noise_is_refused_in_one_line(algorithm: str, noise: str) -> None:
    batches = [] if algorithm == "gd" else ["--batch-size", "10"]
    length = [] if algorithm == "one-pass" else ["--steps", "100"]
    noise_and_rest = ["--noise-multiplier", noise, "--release", "last", "--delta", "1e-5"]
    done = here("account", algorithm, "--n", "1000", *batches, *length, *noise_and_rest)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"--noise-multiplier = {noise} leads beyond double precision" in done.stderr
    assert "state a number between 1e-40 and 1e+40" in done.stderr


@pytest.mark.parametrize("noise", ["1e16", "1e20", "1e39"])
def test_next_to_nothing_but_noise_has_an_answer(noise: str) -> None:
    hiding = ["--learning-rate", "0.1", "--l2", "0.1", "--lipschitz", "1", "--smoothness", "1"]
    done = here(*sgd(noise_multiplier=noise, release="last"), *hiding, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert 0 < json.loads(done.stdout)["claimed_epsilon"] < 1e-9


def test_a_target_that_no_noise_meets_is_refused_in_one_line() -> None:
    hiding = ["--learning-rate", "0.1", "--l2", "0.1", "--lipschitz", "1", "--smoothness", "1"]
    done = here(*sgd("calibrate", epsilon="5e-324", release="last"), *hiding)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no noise up to" in done.stderr


def test_more_passes_than_are_worth_it_are_a_limit_only() -> None:
    words = ["--n", "1000", "--d", "5", "--epsilon", "1", "--compute-budget", "1e18"]
    done = here("plan", *words)
    assert (done.returncode, done.stderr) == (0, "")


HIDING = ["--learning-rate", "1", "--l2", "0.1", "--lipschitz", "1", "--smoothness", "0.25"]
ROUGH = ["--learning-rate", "1", "--diameter", "1", "--lipschitz", "1"]


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("gd", HIDING),
        ("gd", ROUGH),
        ("cyclic", HIDING),
        ("cyclic", [*HIDING, "--order", "reshuffle"]),
        ("langevin", ROUGH),
    ],
)
def test_runs_of_any_length_have_an_answer(algorithm: str, more: list[str]) -> None:
    batches = ["--batch-size", "10"] if algorithm == "cyclic" else []
    noise = [] if algorithm == "langevin" else ["--noise-multiplier", "1"]
    length = ["--steps", str(10**18), "--release", "last", "--delta", "1e-5"]
    done = here("account", algorithm, "--n", "1000", *batches, *noise, *length, *more, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["claimed_epsilon"] > 0
