"""The documentation as a site: it is built without a warning, and its pages need no network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow  # the whole site is built

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
assert spec is not None
assert spec.loader is not None
site_pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site_pages)


def pages_of(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [page for value in values for page in pages_of(value)]


def test_the_navigation_has_every_page_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    inside = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages_of(nav)) == sorted(inside | set(site_pages.OUTSIDE.values()))


@pytest.mark.parametrize(
    ("place", "link", "rewritten"),
    [
        ("index.md", "[a](docs/guides/prior.md)", "[a](guides/prior.md)"),
        ("index.md", "![a](docs/figures/readme.png)", "![a](figures/readme.png)"),
        ("guides/methods.md", "[a](../../README.md)", "[a](../index.md)"),
        ("guides/methods.md", "[a `b`](../tables.md#no-network)", "[a `b`](../tables.md#no-network)"),
        ("benchmarks/RESULTS.md", "[a](../docs/tables.md)", "[a](../tables.md)"),
        ("tables.md", "[a peer](../benchmarks/llp_learn_peer.py)", "a peer"),  # the site has no such file
        ("tables.md", "[a](https://arxiv.org/x)", "[a](https://arxiv.org/x)"),
        ("tables.md", "[a](#here)", "[a](#here)"),
        ("tables.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ],
)
def test_links_are_rewritten_to_the_places_of_the_site(place, link, rewritten):
    assert site_pages.with_site_links(link, place) == rewritten


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("material", reason="needs mkdocs-material, of the extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_of_the_site_loads_anything_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"|<link[^>]* href="([^"]+)"', text)
        assert not [url for pair in loaded for url in pair if "//" in url], page.name


def test_lists_below_a_sentence_are_lists(site):
    """Python-Markdown needs an empty line before a list, and four spaces for an inner one; GitHub does not."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.findall(r"<p>[^<]*(?:<code>[^<]*</code>[^<]*)*\n(?:- |\d\. )", text), page.name
