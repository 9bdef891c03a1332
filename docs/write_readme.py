"""Fill README.md from real runs: outputs of its commands, its results table and its figure.

The README holds the commands, in regions between `<!-- begin NAME -->` and `<!-- end NAME -->`:

- `shell`: lines that start with `$ ` are run in order in one temporary folder; their stdout is written below each;
- `python`: the block is run in the same folder; its stdout is written below it;
- `results`: rows of the first table of docs/reproduction.md.

The figure docs/figures/readme.png shows the tuples and the test scores of the shell region's run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).parent
TARGET = DOCS.parent / "README.md"
REPRODUCTION = DOCS / "reproduction.md"
FIGURE = DOCS / "figures" / "readme.png"
PROMPT = "$ "

# Columns of the table in docs/reproduction.md, by position: its header repeats "at prior π".
COLUMNS = {"data": 0, "(n,m)": 1, "π": 2, "counts (ours)": 3, "all labels": 5, "counts (best of the paper)": 7}
TUPLES = "(3,1)"  # all rows of these tuples: the only one in which the paper is ahead is among them


def region(text: str, name: str) -> str:
    """What lies between the two marks of a region."""
    match = _marked(text, name)
    return match["content"].strip("\n")


def with_region(text: str, name: str, content: str) -> str:
    match = _marked(text, name)
    return f"{text[: match.start('content')]}\n{content}\n{text[match.end('content') :]}"


def shell_commands(text: str) -> list[str]:
    """The commands of the shell region, as typed."""
    lines = region(text, "shell").splitlines()
    return [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]


def shell_outputs(text: str) -> list[str]:
    """What the README shows below each command."""
    body = region(text, "shell").removeprefix("```console\n").removesuffix("\n```")
    blocks = re.split(rf"^{re.escape(PROMPT)}.*\n?", body, flags=re.MULTILINE)
    return [block.strip("\n") for block in blocks[1:]]


def python_code(text: str) -> str:
    match = re.match(r"```python\n(.*?)```", region(text, "python"), flags=re.DOTALL)
    if match is None:
        raise ValueError("README.md: the region 'python' must open with a block of Python")
    return match[1]


def results_table(reproduction: str) -> str:
    """Some columns of the rows of TUPLES in the first table of docs/reproduction.md, cells unchanged."""
    table = re.search(r"^\| data \|.*\n(?:\|.*\n)+", reproduction, flags=re.MULTILINE)
    if table is None:
        raise ValueError("docs/reproduction.md: no table whose first column is 'data'")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]
    chosen = [[row[at] for at in COLUMNS.values()] for row in rows if row[1] == TUPLES]
    lines = [list(COLUMNS), ["---", "---", "---:", "---:", "---:", "---:"], *chosen]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write() -> None:
    """Run everything, then write the README and its figure."""
    text = TARGET.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shell = "\n".join(f"{PROMPT}{line}\n{run_line(line, folder)}".strip() for line in shell_commands(text))
        code = python_code(text)
        printed = _stdout([sys.executable, "-c", code], folder)
        figure = plot_figure(folder / "work" / "tuples", folder / "work" / "count")
    text = with_region(text, "shell", f"```console\n{shell}\n```")
    text = with_region(text, "python", f"```python\n{code}```\n\n```text\n{printed.rstrip()}\n```")
    text = with_region(text, "results", results_table(REPRODUCTION.read_text(encoding="utf-8")))
    FIGURE.write_bytes(figure)
    TARGET.write_text(text, encoding="utf-8")


def plot_figure(tuples: Path, run: Path) -> bytes:
    """Left: training tuples with their counts. Right: test images with the probabilities of the run."""
    import numpy as np
    from matplotlib.figure import Figure

    from ntmp_cli.artifacts import open_artifact
    from ntmp_cli.artifacts.layout import TEST_INSTANCES
    from ntmp_cli.artifacts.oracle import read_labels
    from ntmp_cli.artifacts.scores import read_scores
    from ntmp_cli.artifacts.shards import read_instances, read_tuple_shard, tuple_shard_names
    from ntmp_cli.reporting.plotting import DPI, PALETTE, figure_style, png

    down, across = 4, 6
    artifact, trained = open_artifact(tuples), open_artifact(run)
    block = read_tuple_shard(artifact, tuple_shard_names(artifact, "train")[0])
    images = read_instances(artifact, TEST_INSTANCES)
    scores = read_scores(trained)["test"]
    labels = read_labels(artifact)
    size = int(block.offsets[1])
    with figure_style():
        figure = Figure(figsize=(9, 3.9), dpi=DPI, layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=[size + 1.4, across])
        left.suptitle("Training data: counts of even digits", fontsize=11, fontweight="bold")
        for t, axes in enumerate(left.subplots(down, size + 1, gridspec_kw={"width_ratios": [*[1] * size, 1.4]})):
            members = block.instances[block.offsets[t] : block.offsets[t + 1]]
            for ax, image in zip(axes, members, strict=False):
                _show(ax, np.asarray(image[0]))
            axes[-1].set_axis_off()
            axes[-1].text(0, 0.5, f"{block.counts[t]} of {size} even", va="center", transform=axes[-1].transAxes)
        accuracy = 100 * np.mean((scores > 0) == labels)
        title = f"Result: P(even) of test digits, {accuracy:.1f} % of {len(labels)} correct"
        right.suptitle(title, fontsize=11, fontweight="bold")
        for ax, image, score in zip(right.subplots(down, across).ravel(), images, scores, strict=False):
            _show(ax, np.asarray(image[0]))
            probability = 1 / (1 + np.exp(-float(score)))
            ax.set_title(f"{probability:.2f}", fontsize=9, pad=2, color=PALETTE[0] if score > 0 else PALETTE[1])
        return png(figure)


def _show(ax: Axes, image: object) -> None:
    ax.imshow(image, cmap="gray_r", interpolation="nearest")  # type: ignore[arg-type]
    ax.set_axis_off()


def _marked(text: str, name: str) -> re.Match[str]:
    match = re.search(rf"<!-- begin {name} -->(?P<content>.*?)<!-- end {name} -->", text, flags=re.DOTALL)
    if match is None:
        raise ValueError(f"README.md: no region '{name}'")
    return match


def run_line(line: str, folder: Path) -> str:
    """What a line of the shell region prints, without blank lines around it."""
    return _stdout(["bash", "-o", "pipefail", "-c", line], folder).strip("\n")


def _stdout(command: list[str], folder: Path) -> str:
    """What a command prints on a terminal of 80 columns, with the `ntmp` of this environment first on the PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    write()
