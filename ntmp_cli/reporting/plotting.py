"""Style and output of all figures: the same values give the same bytes, independent of the user's matplotlibrc."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito (2008): distinguishable with common colour-vision deficiencies; their yellow is too pale for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
Dash = Literal["-", "--", ":", "-."]
LINE_STYLES: tuple[Dash, ...] = ("-", "--", ":", "-.")

DPI = 100
_STYLE: Any = {
    "svg.hashsalt": "ntmp",  # element ids are random without it
    "text.parse_math": False,  # a title with two dollar signs is a title, not a formula
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "axes.axisbelow": True,
    "axes.edgecolor": "0.4",
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.07,
}


# As UTF-8; among them U+FFFE and U+FFFF.
_NOT_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")


@contextlib.contextmanager
def figure_style() -> Iterator[None]:
    """The style of every figure, on matplotlib's defaults."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # A name in a script that the font lacks is shown as boxes; tables and page have it in full.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def svg_and_png(figure: Figure) -> dict[str, bytes]:
    """The figure in both formats, by their names."""
    return {"svg": _saved(figure, "svg", {"Date": None, "Creator": "ntmp"}), "png": png(figure)}


def png(figure: Figure, **options: Any) -> bytes:
    return _saved(figure, "png", {"Software": None}, **options)


def _saved(figure: Figure, kind: str, metadata: dict[str, str | None], **options: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format=kind, metadata=metadata, **options)
    # XML has no control characters, in names of users' data neither.
    return _NOT_XML.sub("\ufffd".encode(), out.getvalue()) if kind == "svg" else out.getvalue()
