"""The explorer in a real browser: what a person does, and what must then stand on the screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page, expect

from dplateau import Certificate, certify
from dplateau.cli import main
from dplateau.explore import Setting
from dplateau.ground.shown import rounded_up

if TYPE_CHECKING:
    from conftest import Server

expect.set_options(timeout=60_000)


def opened(page: Page, server: Server, query: str = "") -> None:
    page.goto(f"{server.address}#{query}" if query else server.address)
    settled(page, query)


def settled(page: Page, query: str) -> None:
    """Wait until the claim of this setting, and no other, stands on the page as its own."""
    setting = Setting.read(query)
    shown = rounded_up(certify(setting.run(), setting.delta).claimed_epsilon, 3)
    expect(page.locator("#epsilon")).to_have_text(shown)
    expect(page.locator("#claim")).not_to_have_class(re.compile("updating"))


def slide(page: Page, field: str, spot: int) -> str:
    """Drag a slider to a place of its thousand, and return what its field then says."""
    page.locator(f"#{field}-slider").fill(str(spot))
    return page.locator(f"#{field}").input_value()


def drop(page: Page, name: str, text: str) -> None:
    """Drop a file with this text on the page, as a person would."""
    transfer = page.evaluate_handle(
        """([name, text]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], name, { type: "application/json" }));
            return transfer;
        }""",
        [name, text],
    )
    for event in ("dragover", "drop"):
        page.dispatch_event("main", event, {"dataTransfer": transfer})


def test_it_opens_with_a_claim_and_all_its_pictures(page: Page, server: Server) -> None:
    opened(page, server)
    expect(page.locator("#gain")).to_contain_text("times smaller than 4.22")
    expect(page.locator("#applying tr.best")).to_contain_text("Hidden-state Poisson SGD")
    expect(page.locator("#attack")).to_contain_text("false alarm")
    expect(page.locator("#steps-state")).to_have_text("complete")
    expect(page.locator("canvas")).to_have_count(3)
    expect(page.locator("#steps-legend")).to_contain_text("exact lower bound")
    page.get_by_text("theorems say nothing about this run").click()
    expect(page.locator("#silent")).to_contain_text("is about")
    page.get_by_text("As a table").click()
    expect(page.locator("#steps-table")).to_contain_text("5,000")


def test_sliders_change_the_claim_to_what_certify_gives(page: Page, server: Server) -> None:
    opened(page, server)
    noise = slide(page, "noise_multiplier", 400)
    settled(page, f"noise_multiplier={noise}")
    assert f"noise_multiplier={noise}" in page.url
    assert slide(page, "l2", 0) == "0"
    settled(page, f"noise_multiplier={noise}&l2=0")
    expect(page.locator("#gain")).to_contain_text("No gain")
    page.get_by_label("the model after every step").check()
    settled(page, f"noise_multiplier={noise}&l2=0&release=all")
    page.get_by_label("some models on the way").check()
    page.get_by_label("A model every so many steps", exact=True).fill("1000")
    page.get_by_label("Ridge", exact=True).fill("0.01")
    settled(page, f"noise_multiplier={noise}&l2=0.01&release=checkpoints&every=1000")
    page.get_by_role("button", name="start again").click()
    settled(page, "")


def test_fifty_fast_moves_leave_the_last_answer(page: Page, server: Server) -> None:
    opened(page, server)
    value = ""
    for spot in range(200, 700, 10):
        value = slide(page, "noise_multiplier", spot)
    settled(page, f"noise_multiplier={value}")
    expect(page.locator("body")).to_have_attribute("data-curves", re.compile(f"r={value}&"))
    settled(page, f"noise_multiplier={value}")


def test_what_is_wrong_stands_beside_its_field_and_nothing_is_claimed(
    page: Page, server: Server
) -> None:
    opened(page, server)
    field = page.get_by_label("Records", exact=True)
    field.fill("many")
    expect(page.locator("#n-error")).to_contain_text("is no number")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#epsilon")).to_have_text("–")
    expect(page.locator("#certificate")).to_have_attribute("aria-disabled", "true")
    field.fill("100")
    expect(page.locator("#batch_size-error")).to_contain_text("at most all 100 records")
    page.get_by_label("Batch size", exact=True).fill("10")
    settled(page, "n=100&batch_size=10")
    expect(page.locator("#n-error")).to_be_empty()


def test_copies_make_the_same_claim(
    page: Page, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "epochs=3&release=checkpoints&every=50&diameter=2"
    opened(page, server, query)
    shown = float(page.locator("#epsilon").inner_text())
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.locator("#copied")).to_contain_text("copied")
    exec(page.evaluate("navigator.clipboard.readText()"), {})
    claimed = float(re.findall(r"\(([\d.e-]+), ", capsys.readouterr().out)[0])
    assert claimed <= shown <= 1.01 * claimed
    page.get_by_role("button", name="Copy as command").click()
    expect(page.locator("#copied")).to_contain_text("command was copied")
    command = page.evaluate("navigator.clipboard.readText()")
    with pytest.raises(SystemExit, match="0"):
        main(command.split()[1:])
    assert rounded_up(claimed) in capsys.readouterr().out


def test_a_certificate_goes_out_and_comes_back_verified(
    page: Page, server: Server, tmp_path: Path
) -> None:
    opened(page, server, "epochs=2&noise_multiplier=3")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download certificate").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "certificate.json"
    text = file.read_text(encoding="utf-8")
    assert Certificate.from_json(text).verify().ok
    page.get_by_role("button", name="start again").click()
    settled(page, "")
    drop(page, file.name, text)
    expect(page.locator("#verdict-name")).to_have_text("Verified")
    page.get_by_role("button", name="Show this run here").click()
    settled(page, "epochs=2&noise_multiplier=3")
    drop(page, "forged.json", text.replace('"epsilon": 0.', '"epsilon": 0.0'))
    expect(page.locator("#verdict-name")).to_have_text("Not verified")
    drop(page, "notes.txt", "hello")
    expect(page.locator("#verdict-text")).to_contain_text("no JSON")
    page.locator("#file").set_input_files(str(file))
    expect(page.locator("#verdict-name")).to_have_text("Verified")


def test_its_report_opens_in_a_page_of_its_own(page: Page, server: Server) -> None:
    opened(page, server, "epochs=1&release=all")
    with page.context.expect_page() as other:
        page.get_by_role("link", name="Open its report").click()
    report = other.value
    report.wait_for_load_state(timeout=60_000)
    expect(report.locator("h1")).to_have_text("Privacy report")
    expect(report.locator(".good").first).to_have_text("verified")


def test_the_two_questions_can_be_asked_and_their_answers_used(page: Page, server: Server) -> None:
    opened(page, server, "release=all")
    page.get_by_role("button", name="What noise reaches it?").click()
    expect(page.locator("#found")).to_contain_text("reaches epsilon 1")
    page.get_by_role("button", name="Use it").click()
    noise = page.locator("#noise_multiplier").input_value()
    settled(page, f"release=all&noise_multiplier={noise}")
    assert float(page.locator("#epsilon").inner_text()) <= 1
    page.get_by_role("button", name="start again").click()
    settled(page, "")
    page.get_by_role("button", name="How long may I train?").click()
    expect(page.locator("#found")).to_contain_text("As long as you like")


def test_everything_works_by_keyboard_alone(page: Page, server: Server) -> None:
    opened(page, server)
    reached: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        )
        if reached[-1] == "noise_multiplier-slider":
            for _ in range(30):
                page.keyboard.press("ArrowRight")
        if reached[-1] == "release-last":
            page.keyboard.press("ArrowDown")
            page.keyboard.press("ArrowDown")
    wanted = {"release-last", "epochs", "epochs-slider", "batches", "loss", "delta", "target"}
    buttons = {"ask-noise", "ask-length", "copy-python", "copy-command", "certificate", "report"}
    assert wanted | buttons | {"file"} <= set(reached)
    noise = page.locator("#noise_multiplier").input_value()
    assert float(noise) > 1.1
    settled(page, f"noise_multiplier={noise}&release=all")


def test_every_control_has_a_name_and_the_claim_is_announced(page: Page, server: Server) -> None:
    opened(page, server)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, a")]
            .filter((one) => !(one.labels?.length || one.ariaLabel || one.textContent.trim()))
            .map((one) => one.outerHTML)"""
    )
    assert nameless == []
    live = page.locator("#live")
    expect(live).to_have_attribute("aria-live", "polite")
    expect(live).to_contain_text("epsilon 0.646")
    expect(page.get_by_role("slider", name="Noise, slider")).to_have_attribute(
        "aria-valuetext", "1"
    )
    expect(page.get_by_role("slider", name="Diameter, slider")).to_have_attribute(
        "aria-valuetext", "unbounded"
    )
    picture = page.get_by_role("img", name=re.compile("At 5000 steps: Hidden-state"))
    expect(picture).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Browser, server: Server, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True
    )
    page = context.new_page()
    opened(page, server)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    page.locator("#delta-slider").scroll_into_view_if_needed()
    slide(page, "delta", 500)
    settled(page, f"delta={page.locator('#delta').input_value()}")
    # The claim stays in sight while the settings are.
    expect(page.locator("#epsilon")).to_be_in_viewport()
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back))) < 200) == (scheme == "dark")
    context.close()


def test_the_state_is_in_the_address_and_follows_it(page: Page, server: Server) -> None:
    query = "epochs=7&noise_multiplier=2.5&neighbors=replace"
    opened(page, server, query)
    assert page.locator("#epochs").input_value() == "7"
    assert Setting.read(page.url.partition("#")[2]) == Setting.read(query)
    page.goto(f"{server.address}#epochs=9")
    expect(page.locator("#epochs")).to_have_value("9")
    settled(page, "epochs=9")


def test_a_killed_server_is_noticed_and_its_return_too(page: Page, own_server: Server) -> None:
    opened(page, own_server)
    own_server.kill()
    slide(page, "noise_multiplier", 500)
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#claim")).to_have_class(re.compile("updating"))
    expect(page.locator("#again")).to_have_text(f"dplateau explore --address {own_server.address}")
    own_server.start()
    expect(page.locator("#lost")).to_be_hidden()
    settled(page, f"noise_multiplier={page.locator('#noise_multiplier').input_value()}")


def test_no_number_on_the_page_is_rounded_twice(page: Page, server: Server) -> None:
    """Small and large ones too: a claim of .000123 is not told as 1e-4."""
    opened(page, server)
    values = [0.000123, 0.00012345, 0.0009999, 0.64561, 999.6, 123456, 1234567, 9.999e9]
    shown = page.evaluate(
        """async (values) => {
            const { up, down } = await import("./charts.js");
            return values.map((value) => [Number(up(value)), Number(down(value))]);
        }""",
        values,
    )
    for value, (above, below) in zip(values, shown, strict=True):
        assert 0.98 * above <= below <= value <= above
