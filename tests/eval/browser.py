"""Headless Chromium, driven by the tests of the report."""

import base64
import importlib.util
import os
import time
from pathlib import Path
from urllib.parse import urlencode

import pypdfium2
import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.common.exceptions import NoAlertPresentException  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

__all__ = ["CHROMIUM", "DRIVER", "Browser", "Keys", "NoAlertPresentException", "Select"]

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1440,1000",
    "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


class Browser:
    """Chromium with the few things that these tests do."""

    def __init__(self, profile):
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))

    def open(self, file, **parts):
        """Load a report from its file, afresh, and wait until its questions are unpacked."""
        self.driver.get("about:blank")
        self.driver.get(file.as_uri() + (f"#{urlencode(parts)}" if parts else ""))
        self.until("return document.querySelectorAll('#list .row').length > 0")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, script, *arguments, seconds=15):
        """Wait until a script gives something true, and return it."""
        end = time.monotonic() + seconds
        while not (found := self.run(script, *arguments)):
            assert time.monotonic() < end, f"this did not become true: {script}"
            time.sleep(0.02)
        return found

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)", selector
        )

    def pills(self):
        """How each run did on each question in sight, as the classes of the list's marks."""
        classes = "[...row.querySelectorAll('.pill')].map((pill) => pill.className)"
        return self.run(f"return [...document.querySelectorAll('#list .row')].map((row) => {classes})")

    def press(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def focused(self):
        return self.run("return document.activeElement.id")

    def choose(self, name, text):
        Select(self.find(f"#{name}")).select_by_visible_text(text)

    def search(self, words):
        box = self.find("#search")
        box.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE, words)
        time.sleep(0.15)

    def opened(self, part):
        """Wait until the open question has this in its text."""
        self.until("return document.querySelector('#trace-title').innerText.includes(arguments[0])", part)

    def width(self, width, height, mobile=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if mobile else 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def picture(self, name):
        """Save what is on the screen, if someone asked for pictures."""
        if folder := os.environ.get("CORAG_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            time.sleep(0.3)
            self.driver.save_screenshot(str(Path(folder) / f"report-{name}.png"))

    def serious(self, **options):
        """Return the serious violations that axe-core finds in each theme."""
        spec = importlib.util.find_spec("axe_playwright_python")
        if spec is None or spec.origin is None:
            pytest.skip("axe-core is not installed: it comes with the package axe-playwright-python")
        axe = (Path(spec.origin).parent / "axe.min.js").read_text()
        found = []
        for theme in ("light", "dark"):
            self.run("document.documentElement.dataset.theme = arguments[0]", theme)
            self.run(f"if (!window.axe) {{ {axe} }}")
            self.run(
                "window.found = null; axe.run(arguments[0]).then((each) => { window.found = each; })", options
            )
            result = self.until("return window.found", seconds=120)
            assert len(result["passes"]) > 10, "it has looked"
            found += [
                (theme, each["id"], [node["target"] for node in each["nodes"]])
                for each in result["violations"]
                if each["impact"] in ("serious", "critical")
            ]
        return found

    def printed(self):
        """Return the texts of the pages that are printed on A4, without backgrounds."""
        sheet = {"printBackground": False, "paperWidth": 8.27, "paperHeight": 11.69}
        data = base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", sheet)["data"])
        pages = pypdfium2.PdfDocument(data)
        return [page.get_textpage().get_text_range() for page in pages]

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
