"""The page of a report in a browser, opened from the file system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--disable-quic"]
PROJECT = Path(__file__).parents[2]


class Reader:
    """The page opened from the file system, and everything that the browser said or asked for meanwhile."""

    def __init__(self, browser: Any, report: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_context(**context).new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.url = (report / "index.html").as_uri()
        self.page.goto(self.url)

    def column(self, table: str, number: int) -> list[str]:
        cells = f"table[data-name='{table}'] tbody tr:not([hidden]) td:nth-child({number})"
        return [text.strip() for text in self.page.locator(cells).all_text_contents()]

    def sort(self, table: str, heading: str, key: str | None = None) -> str | None:
        button = self.page.locator(f"table[data-name='{table}'] th", has_text=heading).get_by_role("button")
        button.press(key) if key else button.click()
        return self.page.locator(f"table[data-name='{table}'] th", has_text=heading).get_attribute("aria-sort")

    def too_wide(self) -> list[str]:
        """Boxes whose content has to be scrolled sideways."""
        boxes = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
        return self.page.evaluate(f"{boxes}.map(box => box.closest('section').id)")


def violations(browser: Any, report: Path, scheme: str) -> list[str]:
    """What axe-core finds wrong with the page, by rule; skipped where it is not installed.

    `npm install --no-save axe-core` puts it where it is looked for; NTMP_AXE_CORE names another folder.
    """
    folder = Path(os.environ.get("NTMP_AXE_CORE", PROJECT / "node_modules" / "axe-core"))
    script = folder / "axe.min.js"
    if not script.exists():
        pytest.skip(
            f"axe-core is not installed: no {script.name} in node_modules, and NTMP_AXE_CORE names no other folder"
        )
    # The policy of the page lets no other script run.
    reader = Reader(browser, report, color_scheme=scheme, bypass_csp=True, viewport={"width": 1280, "height": 900})
    reader.page.evaluate(script.read_text(encoding="utf-8"))
    found = reader.page.evaluate("axe.run(document)")
    assert len(found["passes"]) > 10
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]]
