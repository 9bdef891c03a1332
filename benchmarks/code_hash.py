"""The hash of the code that a result depends on: other comments and docstrings keep the result."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path


def code_alone(source: str) -> str:
    """The code without comments, and without texts that stand alone as a statement: docstrings of any kind."""

    class WithoutTexts(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
            is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            return None if is_text else node

    # A body of nothing but a text is left empty: it is compared, never run.
    return ast.unparse(WithoutTexts().visit(ast.parse(source)))


def code_hash(places: Iterable[Path]) -> str:
    """SHA-256 of the code in these files and folders."""
    files = [file for path in places for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    text = "".join(code_alone(file.read_text(encoding="utf-8")) for file in files)
    return hashlib.sha256(text.encode()).hexdigest()
