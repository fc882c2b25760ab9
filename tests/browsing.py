"""The what-if page in a real browser, for tests."""

import json
import re
from contextlib import contextmanager

import httpx
import pytest

from extras import chromium_or_skip
from forestall.decisions import percent

ARGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
QUIET = """
() => !document.getElementById('main').hidden
  && document.querySelector('#landscape-plot .main-svg') !== null
  && [...document.querySelectorAll('.card[aria-busy]')]
      .every(e => e.getAttribute('aria-busy') === 'false')
"""


@contextmanager
def browsing():
    """A browser without a screen."""
    path = chromium_or_skip()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        yield browser
        browser.close()


class Watched:
    """A page, with all that it asked for and all that it complained of."""

    def __init__(self, page, url):
        """Watch a page before it is opened."""
        self.page, self.url = page, url
        self.complaints, self.asked = [], []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request))

    def _heard(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def quiet(self):
        self.page.wait_for_function(QUIET, timeout=30_000)
        return self

    def text(self, id_):
        return self.page.locator(f"#{id_}").text_content()

    def slider(self, name):
        return self.page.locator(f"[data-name={name}] input[type=range]")

    def box(self, name):
        return self.page.locator(f"[data-name={name}] input[type=number]")

    def answered(self, actions):
        """Wait until the answer that is shown is about these actions."""
        self.page.wait_for_function(
            "told => { const e = document.getElementById('whatif');"
            " const about = JSON.parse(e.dataset.answers ?? '{}');"
            " return e.getAttribute('aria-busy') === 'false'"
            " && Object.keys(told).every(k => about[k] === told[k]) }",
            arg=actions,
            timeout=30_000,
        )

    def bodies(self, path):
        """What was sent to an endpoint."""
        sent = [each for each in self.asked if each.url.endswith(f"/v1/{path}")]
        return [json.loads(each.post_data) for each in sent]


@contextmanager
def shown(browser, url, *, forgiven="", opened=True, scheme="light"):
    """Open the page; afterwards nothing was complained of, and nobody else asked."""
    # One profile for all: plotly.js is read and compiled once.
    context = browser.contexts[0] if browser.contexts else browser.new_context()
    watched = Watched(context.new_page(), url)
    try:
        watched.page.emulate_media(color_scheme=scheme)
        watched.page.goto(url)
        yield watched.quiet() if opened else watched
        others = [each.url for each in watched.asked if not each.url.startswith(url)]
        assert all(other.startswith(("blob:", "data:")) for other in others), others
        fault = [
            each
            for each in watched.complaints
            if not (forgiven and re.search(forgiven, each))
        ]
        assert fault == []
    finally:
        watched.page.close()


def typical(url):
    told = httpx.get(f"{url}/v1/policy").json()
    return {field["name"]: field["typical"] for field in told["contexts"]}


def called(row):
    """Say what the best action is called: only to act on it is advice."""
    return "recommended" if row["verdict"] == "act" else "best candidate"


def assert_shows(watched, row):
    """Check that the answer on the page is what the service says."""
    now, without = row["probability"], row["no_action"]
    assert watched.text("probability") == percent(now)
    assert watched.text("no-action") == percent(without)
    assert watched.text("interval") == f"{row['lower']:.0%} to {row['upper']:.0%}"
    assert watched.text("support") == percent(row["support"])
    assert watched.page.locator("#warning").is_visible() == row["extrapolates"]
    badge = watched.page.locator("#whatif-badge").get_attribute("data-verdict")
    assert badge == row["verdict"]
    for mark, share in {"dot": now, "without": without, "band": row["lower"]}.items():
        left = watched.page.eval_on_selector(f"#{mark}", "e => e.style.left")
        assert float(left.rstrip("%")) == pytest.approx(100 * share, abs=1e-3)
