# The page in a real browser: it works with a mouse, with a keyboard and on a phone, in light and in dark.

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.browser import Tab, chromium, found
from tests.server.running import Running, server

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        found() is None and not os.environ.get("CI"),
        reason="Chromium is not installed: apt-get install chromium",
    ),
]

POLICY = """\
version: 1
rules:
  - name: organization
    by: [org]
    limit: {algorithm: token_bucket, capacity: 15, rate: 1 per 5 s}
    cost: {"POST /exports": 5}
    overrides: {acme: {algorithm: token_bucket, capacity: 5, rate: 0/s}}
  - name: "<b>\\"everyone\\"</b>"
    by: []
    limit: {algorithm: leaky_bucket, capacity: 100000, rate: 1000/s}
  - name: tight
    by: [org]
    mode: shadow
    limit: {algorithm: sliding_log, limit: 1, window: 10min}
attributes:
  org: {header: X-Org}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a burst of fifteen."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "policy.yaml").write_text(POLICY)
    with server(folder, folder / "policy.yaml") as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """One browser for all of these tests."""
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    """The browser; at the end its console must be empty: no error, no violation of the page's own policy."""
    browser.complaints.clear()
    yield browser
    browser.run("1")
    assert browser.complaints == []


def write(tab: Tab, attribute: str, value: str) -> None:
    tab.run(f"document.querySelector('[data-attribute={attribute}]').value = '{value}'")


def text(tab: Tab, identity: str) -> str:
    return str(tab.run(f"document.getElementById('{identity}').innerText"))


def press(tab: Tab, words: str) -> None:
    """Press the button with these words, and wait for the answer."""
    tab.run("document.getElementById('json').textContent = ''")
    tab.run("document.getElementById('error').hidden = true")
    tab.run(f"[...document.querySelectorAll('button')].find((b) => b.textContent === '{words}').click()")
    tab.wait_for(
        "document.getElementById('json').textContent !== '' || !document.getElementById('error').hidden"
    )


def test_a_burst_is_served_and_the_next_refused(running: Running, tab: Tab):
    """Ask once, then twice a burst of ten: the page shows verdicts, what is left and when to retry."""
    tab.open(running.base + "/")
    write(tab, "org", "first")

    press(tab, "Ask once")
    assert text(tab, "verdict") == "Allowed"
    assert "14 of 15" in text(tab, "outcomes")
    assert not tab.run("document.getElementById('retry').offsetHeight")
    press(tab, "Burst of 10")
    assert text(tab, "word") == "10 of 10 allowed"
    assert "refuses (only reports)" in text(tab, "outcomes")
    press(tab, "Burst of 10")
    assert text(tab, "word").startswith("4 of 10 allowed")
    assert "the rest refused by “organization”" in text(tab, "verdict")
    assert "if nobody else asks" in text(tab, "retry")
    assert "Retry-After" in text(tab, "retry")
    assert text(tab, "tally") == "So far from this page: 15 allowed, 6 refused."
    assert tab.run("document.querySelectorAll('#history .no').length") == 6
    meter = "document.querySelector('tr.binds [role=meter]')"
    assert tab.run(f"{meter}.getAttribute('aria-valuemax')") == "15"
    assert tab.run(f"{meter}.firstChild.offsetWidth") < 20


def test_what_comes_back_is_seen_and_the_wait_counts_down(running: Running, tab: Tab):
    """The countdown runs down to "Now it would pass", the meter fills meanwhile, and asking then succeeds."""
    tab.open(running.base + "/")
    write(tab, "org", "second")
    for _ in range(2):
        press(tab, "Burst of 10")
    first = float(tab.run("/Passes in ([0-9.]+) s/.exec(document.getElementById('retry').innerText)[1]"))
    assert 0 < first <= 5
    tab.wait_for("document.querySelector('tr.binds .amount').innerText.startsWith('1 of 15')")
    tab.wait_for("document.getElementById('retry').innerText.startsWith('Now it would pass.')")

    press(tab, "Ask once")
    assert text(tab, "word") == "Allowed"


def test_costs_and_overrides(running: Running, tab: Tab):
    """The route's price and an organization's own limit show, and never is said where waiting is in vain."""
    tab.open(running.base + "/")
    assert tab.run("[...document.querySelectorAll('datalist option')].map((o) => o.value)") == [
        "acme",
        "POST /exports",
    ]
    write(tab, "org", "acme")
    write(tab, "route", "POST /exports")

    press(tab, "Ask once")
    assert text(tab, "word") == "Allowed"
    assert "0 of 5" in text(tab, "outcomes")

    press(tab, "Ask once")
    assert text(tab, "word") == "Refused"
    assert text(tab, "retry") == "Waiting does not help: this can never pass."


def test_a_wrong_cost_and_a_server_that_is_gone_are_told(tmp_path: Path, tab: Tab):
    """The form holds back what is no cost; what the server refuses to read is told, and so is its silence."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    with server(tmp_path, tmp_path / "policy.yaml") as running:
        tab.open(running.base + "/")
        tab.run("document.getElementById('cost').value = '-1'")
        assert tab.run("document.getElementById('ask').checkValidity()") is False
        tab.run("document.getElementById('cost').value = '0.00001'")
        press(tab, "Ask once")
        assert "tokens are counted in thousandths" in text(tab, "error")
        assert any("400" in complaint for complaint in tab.complaints)
        tab.run("document.getElementById('cost').value = '1'")
        press(tab, "Ask once")
        assert tab.run("document.getElementById('error').hidden")
        running.stop()
        press(tab, "Ask once")
        tab.wait_for("!document.getElementById('error').hidden")
        assert "The server does not answer" in text(tab, "error")
    tab.call("Page.navigate", url="about:blank")
    tab.complaints.clear()  # what was refused and what is gone was meant to be


FOCUSED = "((at) => at.dataset.attribute || at.innerText || at.id)(document.activeElement)"


def test_everything_works_by_keyboard(running: Running, tab: Tab):
    """Tab reaches the link to the form, each field and each button in order; Enter asks."""
    tab.open(running.base + "/")
    reached = []
    for _ in range(40):
        tab.press("Tab", "Tab")
        where = tab.run(FOCUSED)
        reached.append(where)
        outline = tab.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"nobody sees that {where} has the focus"
        if where == "Burst of 10":
            break

    assert reached[0] == "Go to the form"
    wanted = ["metrics", "health", "org", "route", "cost", "Ask once", "Burst of 10"]
    assert [one for one in reached if one in wanted] == wanted
    tab.run("document.getElementById('cost').focus()")
    tab.press("Enter", "Enter", text="\r")
    tab.wait_for("document.getElementById('word').textContent === 'Allowed'")


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_can_be_read(width: int, dark: bool, running: Running, tab: Tab, tmp_path: Path):
    """Nothing is wider than the window, and every text stands out from its ground by 4.5 to 1."""
    tab.open(running.base + "/", width=width, dark=dark)
    write(tab, "org", f"fits-{width}-{dark}")
    press(tab, "Burst of 10")
    press(tab, "Burst of 10")
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run(CONTRASTS) == []
    if folder := os.environ.get("TIDEGATE_SCREENSHOTS"):
        tab.screenshot(Path(folder) / f"page-{width}-{'dark' if dark else 'light'}.png")


CONTRASTS = """
(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.offsetParent || element.tagName === "OPTION") continue;
    const both = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    if (ratio < 4.5) weak.push(`${element.tagName} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return weak;
})()
"""


def test_what_a_reader_hears(running: Running, tab: Tab):
    """The accessibility tree names headings, fields, buttons, meters and the verdict's live region."""
    tab.open(running.base + "/")
    write(tab, "org", "heard")
    press(tab, "Ask once")

    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    }
    for expected in (
        ("heading", "The policy in force"),
        ("heading", "Try it"),
        ("heading", "organization"),
        ("heading", '<b>"everyone"</b>'),
        ("button", "Ask once"),
        ("button", "Burst of 10"),
        ("spinbutton", "cost"),
        ("meter", "left under organization"),
        ("rowheader", "organization binds"),
    ):
        assert expected in named, sorted(named)
    assert {"main", "banner", "navigation", "status", "table"} <= {role for role, _ in named}
    assert {name for role, name in named if role in {"combobox", "textbox"}} == {"org", "route"}
