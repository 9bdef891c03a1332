"""The site has pages that lie outside of docs/: README, CONTRIBUTING, benchmarks. MkDocs calls this module (hooks).

Links are written for a reader of the repository. Here they are rewritten to where the pages are in the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Page of the repository: its place in the site.
OUTSIDE = {
    "README.md": "index.md",
    **{name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")},
    **{name: name for name in ("benchmarks/RESULTS.md", "benchmarks/SCALE.md", "benchmarks/WORKERS.md")},
}
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return with_site_links(markdown, page.file.src_uri)


def with_site_links(markdown: str, place: str) -> str:
    """The text of a page with links that hold in the site; links to files that the site lacks become plain text."""
    outside = {site: source for source, site in OUTSIDE.items()}
    folder = posixpath.dirname(outside.get(place, f"docs/{place}"))

    def rewritten(match: re.Match[str]) -> str:
        text, link = match.groups()
        path, hash_, anchor = link.partition("#")
        if not path or link.startswith("https://"):
            return match[0]
        target = posixpath.normpath(posixpath.join(folder, path))
        site = OUTSIDE.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if site is None:
            return text[1:-1]
        return f"{text}({posixpath.relpath(site, posixpath.dirname(place) or '.')}{hash_}{anchor})"

    # Every second piece is code, where nothing is a link. A link's own text may hold code: links are found first.
    blocks = re.split(r"(```.*?```)", markdown, flags=re.DOTALL)
    return "".join(block if number % 2 else LINK.sub(rewritten, block) for number, block in enumerate(blocks))
