"""What the explorer's server lets in, computes and gives up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dplateau import Certificate, certify
from dplateau.bounds.registry import bound_named
from dplateau.certificates import epsilon_over_steps
from dplateau.cli import main
from dplateau.errors import InvalidInput
from dplateau.explore import Explorer, Setting
from dplateau.explore.answers import ANSWERS
from dplateau.explore.server import ASSETS, LARGEST_FILE
from dplateau.explore.settings import WrongFields, setting_of
from dplateau.explore.workers import Died, TookTooLong, Workers

if TYPE_CHECKING:
    from conftest import Server

SETTINGS = (
    "",
    "release=all&epochs=2",
    "release=checkpoints&every=700&epochs=20",
    "neighbors=replace&noise_multiplier=3&delta=1e-6",
    "batches=full&epochs=300&noise_multiplier=50&diameter=2",
    "batches=cyclic&epochs=4&loss=huber&learning_rate=0.5",
    "batches=fixed&neighbors=replace&epochs=3",
    "loss=hinge&diameter=3&epochs=1&l2=0",
    "loss=own&lipschitz=2&smoothness=1&convex=no&diameter=2&learning_rate=0.1&epochs=1",
)
# The exact lower bound of a wide domain: an answer that takes long.
SLOW = "diameter=2&l2=0"


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", SETTINGS)
def test_a_setting_is_the_same_in_an_address_in_python_and_on_the_command_line(
    query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = Setting.read(query)
    assert Setting.read(setting.query()) == setting
    assert setting_of(setting.run(), setting.delta) == setting
    claimed = certify(setting.run(), setting.delta).claimed_epsilon
    found: dict[str, object] = {}
    exec(setting.python(), found)
    assert str(certify(setting.run(), setting.delta)) in capsys.readouterr().out
    assert found["run"] == setting.run()
    with pytest.raises(SystemExit, match="0"):
        main([*shlex.split(setting.command())[1:], "--json"])
    assert json.loads(capsys.readouterr().out)["claimed_epsilon"] == claimed


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("n=abc", "n", "is no number"),
        ("n=", "n", "type a number"),
        ("n=1.5", "n", "whole number"),
        ("noise_multiplier=0", "noise_multiplier", "from 0.05"),
        ("delta=0.5", "delta", "from 1e-15 to 0.1"),
        ("delta=nan", "delta", "from 1e-15 to 0.1"),
        ("release=some", "release", "one of last, checkpoints, all"),
        ("batch_size=100000", "batch_size", "at most all 60000 records"),
        ("epochs=1000000&batch_size=1", "epochs", "at most"),
        ("batches=fixed", "batches", "neighbors='replace'"),
        ("bogus=1", "", "no field 'bogus'"),
        ("n=" + "1" * 3000, "", "at most 2000 characters"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(query: str, field: str, words: str) -> None:
    with pytest.raises(WrongFields) as refusal:
        Setting.read(query)
    assert words in refusal.value.errors[field]


def test_runs_that_the_page_cannot_show_are_not_shown_as_others() -> None:
    run = Setting().run()
    assert setting_of(run.replace(steps=4999), 1e-5) is not None
    assert setting_of(run.replace(momentum=0.5), 1e-5) is None
    assert setting_of(run.replace(group_size=3), 1e-5) is None
    assert setting_of(run.replace(steps=2, learning_rate=[1.0, 2.0]), 1e-5) is None


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", SETTINGS[:5])
def test_the_claim_is_that_of_certify_and_every_number_is_rounded_up(query: str) -> None:
    setting = Setting.read(query)
    certificate = certify(setting.run(), setting.delta)
    answer = ANSWERS["claim"](query)
    claim, table = next(answer), next(answer)
    assert claim["epsilon"] == certificate.claimed_epsilon <= float(claim["shown"])
    assert claim["bound"] == certificate.bound
    assert table["applying"][0]["bound"] == certificate.bound
    assert all(row["reason"] for row in table["silent"])
    charged = [row for row in table["applying"] if not row["hidden_state"]]
    least = min(float(row["epsilon"]) for row in charged)
    assert table["composition"] <= least
    if table["ratio"] is not None:
        assert float(table["ratio"]) * claim["epsilon"] <= table["composition"]


def test_every_point_of_a_preview_is_a_claim_and_no_claim_is_below_the_truth() -> None:
    setting = Setting.read("epochs=5&noise_multiplier=2")
    preview, *rest = ANSWERS["curves"](setting.query())
    assert preview["kind"] == "preview"
    for line in preview["lines"]:
        bounds = [bound_named(line["bound"])]
        for at, shown in [(x, y) for x, y in zip(line["x"], line["y"], strict=True)][::7]:
            proved = epsilon_over_steps(setting.run(), setting.delta, [at], bounds=bounds).best[0]
            # Bounds that plan at few lengths say a little less or more with others beside them.
            assert shown == pytest.approx(proved, rel=0.03)
    lines = {m["bound"]: dict(zip(m["x"], m["y"], strict=True)) for m in rest if "bound" in m}
    assert set(lines) == {line["bound"] for line in preview["lines"]}
    lower = {m["x"]: m["y"] for m in rest if m["kind"] == "lower"}
    assert len(lower) > 20
    for line in lines.values():
        assert all(line[at] >= low for at, low in lower.items() if at in line)


def test_the_two_questions() -> None:
    (noise,) = ANSWERS["noise"]("target=1&release=all")
    assert certify(Setting.read(f"release=all&noise_multiplier={noise['value']}").run(), 1e-5)
    setting = Setting.read(f"release=all&noise_multiplier={noise['value']}")
    assert certify(setting.run(), 1e-5).claimed_epsilon <= 1
    (length,) = ANSWERS["length"]("target=2&release=all")
    longest = Setting.read(f"release=all&epochs={length['value']}").run()
    assert certify(longest, 1e-5).claimed_epsilon <= 2
    assert certify(longest.replace(steps=longest.steps + 1), 1e-5).claimed_epsilon > 2
    (plateau,) = ANSWERS["length"]("target=2")
    assert plateau["value"] is None
    assert "As long as you like" in plateau["text"]


# --- the guard ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=60) as found:
        yield found


@pytest.mark.parametrize("name", ASSETS)
def test_assets_are_served_with_a_policy_that_allows_no_other_host(
    name: str, client: httpx.Client
) -> None:
    answer = client.get(name)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    if not name.startswith("uPlot"):
        outside = set(re.findall(r"https?://[^\s\"')]+", answer.text))
        assert outside <= {"http://www.w3.org/2000/svg"}


def test_who_does_not_know_the_token_or_comes_from_elsewhere_gets_nothing(
    client: httpx.Client, server: Server
) -> None:
    root = f"http://127.0.0.1:{server.port}"
    for path in ("/", "/setup", "/" + "x" * len(server.token) + "/", f"/{server.token[:-1]}/"):
        assert httpx.get(root + path).status_code == 404
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", "127.0.0.1:1"):
        assert client.get("setup", headers={"Host": host}).status_code == 421
    origin = {"Origin": "http://evil.example"}
    assert client.post("verify", content="{}", headers=origin).status_code == 403
    assert client.get("setup", headers={"Host": f"localhost:{server.port}"}).status_code == 200
    assert client.get("../../etc/passwd").status_code == 404


def test_only_this_machine_is_answered(server: Server) -> None:
    table = Path("/proc/net/tcp").read_text(encoding="ascii")
    listening = [line.split()[1] for line in table.splitlines() if line.split()[3] == "0A"]
    mine = [place for place in listening if int(place.partition(":")[2], 16) == server.port]
    assert mine == [f"0100007F:{server.port:04X}"]


def test_bad_and_oversized_input_is_refused_in_words(client: httpx.Client) -> None:
    answer = client.get("claim?n=0")
    assert answer.status_code == 422
    assert "from 1 to" in answer.json()["errors"]["n"]
    assert client.get("claim?n=" + "1" * 5000).status_code == 422
    assert client.get("certificate?n=0").status_code == 422
    assert client.post("verify", content=b"x" * (LARGEST_FILE + 1)).status_code == 413
    assert "no JSON" in client.post("verify", content="hello").json()["errors"][""]
    assert "no text" in client.post("verify", content=b"\xff\xfe").json()["errors"][""]


def test_certificate_and_report_are_about_the_setting(client: httpx.Client) -> None:
    query = "epochs=1&release=all"
    setting = Setting.read(query)
    answer = client.get(f"certificate?{query}")
    assert 'filename="certificate.json"' in answer.headers["content-disposition"]
    certificate = Certificate.from_json(answer.text)
    assert certificate == certify(setting.run(), setting.delta)
    verdict = client.post("verify", content=answer.text).json()
    assert verdict["ok"]
    assert Setting.read(verdict["query"]) == setting
    forged = answer.text.replace('"epsilon": 0.', '"epsilon": 0.0')
    assert not client.post("verify", content=forged).json()["ok"]
    page = client.get(f"report?{query}")
    assert "Privacy report" in page.text
    assert "verified" in page.text
    assert page.headers["content-security-policy"].endswith("sandbox")


def test_addresses() -> None:
    first = Explorer.open()
    assert first.port > 0
    assert len(first.token) >= 32
    assert first.page("epochs=2").endswith("target=1")
    first.socket.listen()
    with pytest.raises(InvalidInput, match="cannot serve at port"):
        Explorer.open(first.address)
    first.socket.close()
    for wrong in ("x", "http://127.0.0.1:80/short/", f"http://evil.example:80/{first.token}/"):
        with pytest.raises(InvalidInput, match="an explorer's address looks like"):
            Explorer.open(wrong)


def test_the_command_refuses_a_wrong_state_in_one_line() -> None:
    command = [sys.executable, "-m", "dplateau", "explore", "--no-browser", "--state", "n=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "from 1 to" in done.stderr


# --- workers --------------------------------------------------------------------------------------


def in_a_loop_of_its_own(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a thread: the driver of the browser keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def test_an_answer_that_nobody_waits_for_ends_its_process() -> None:
    async def leave_early() -> None:
        workers = Workers()
        answer = workers.answer("curves", SLOW, 600)
        assert (await anext(answer))["kind"] == "preview"
        (worker,) = workers.busy
        assert worker.process.is_alive()
        await answer.aclose()
        assert workers.busy == set()
        await asyncio.to_thread(worker.process.join, 30)
        assert not worker.process.is_alive()
        workers.close()

    in_a_loop_of_its_own(leave_early())


def test_a_whole_answer_leaves_its_process_for_the_next() -> None:
    async def ask_twice() -> None:
        workers = Workers()
        found = []
        for _ in range(2):
            answer = workers.answer("certificate", "epochs=1", 600)
            found.append([message["kind"] async for message in answer])
            (worker,) = workers.idle
            found.append(worker.process.pid)
        workers.close()
        assert found[0] == found[2] == ["text"]
        assert found[1] == found[3]

    in_a_loop_of_its_own(ask_twice())


def test_late_and_dead_answers_are_told_apart() -> None:
    async def see() -> None:
        workers = Workers()
        with pytest.raises(TookTooLong):
            async for _ in workers.answer("curves", SLOW, 0.01):
                pass
        answer = workers.answer("curves", SLOW, 600)
        await anext(answer)
        next(iter(workers.busy)).process.kill()
        with pytest.raises(Died):
            async for _ in answer:
                pass
        refused = [message async for message in workers.answer("claim", "n=0", 600)]
        assert refused[0]["kind"] == "refused"
        workers.close()

    in_a_loop_of_its_own(see())


def alive(mark: str) -> set[int]:
    """Return the processes that a server with this mark has started, itself included."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"EXPLORER_MARK={mark}".encode() in (place / "environ").read_bytes():
                found.add(int(place.name))
    return found - {os.getpid()}


def test_a_killed_server_leaves_no_process_behind(own_server: Server) -> None:
    with httpx.stream("GET", f"{own_server.address}curves?{SLOW}", timeout=60) as answer:
        next(answer.iter_lines())
        assert len(alive(own_server.mark)) > 2
        own_server.kill()
    until = time.monotonic() + 60
    while alive(own_server.mark) and time.monotonic() < until:
        time.sleep(0.2)
    assert alive(own_server.mark) == set()
