"""Write the tables of docs/reproduction.md, between `<!-- begin NAME -->` and `<!-- end NAME -->`, from docs/results/.

python -m docs.write_reproduction

- paper.yaml: a record per training on the paper's accuracy tables (`python -m benchmarks.paper_rows`);
- clamps.yaml: a record per training on little data (`python -m benchmarks.clamps`);
- earlier.yaml: tables that are older than these files, stored as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from benchmarks.paper_rows import DATA, PRIORS, SAME, TUPLES
from benchmarks.training_store import CHOICE_SEEDS, FOLDER, METRICS, TrainingStore
from docs.write_readme import with_region
from ntmp_cli.reporting.paper import paper_cells

PAGE = Path(__file__).with_name("reproduction.md")
NAMES = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "digits": "digits"}
# The paper's columns in its order, then ours; and the method of its cells.
PAPER_COLUMNS = {
    "abs": ("ABS", "ure+abs/source"),
    "relu": ("ReLU", "ure+relu/source"),
    "ure": ("URE", "ure"),
    "uucor": ("UUcor", "uucor"),
    "uu": ("UU", "uu"),
    "kmeans": ("K-means", "kmeans"),
    "kmeans++": ("K-means++", "kmeans++"),
}
OWN_COLUMNS = {"count": "`count`", "supervised": "`supervised`"}
# Trainings on little data (benchmarks/clamps.py).
BEFORE = "abs, sixteen batches"
ADAPTIVE = {
    "slack 1": "max(term, −s.e.)",
    "slack 2": "max(term, −2 s.e.)",
    "flood 1": "abs(term − s.e.)",
    "mean-abs": "sign of a running mean",
    "mean-relu": "stop by a running mean",
    "shrink": "abs(term), weight t²/(t² + s.e.²)",
}
OPTIONS = {
    "abs, intercept by shares": "known prior, `--intercept shares`",
    "abs, prior estimated": "estimated prior",
    "abs, prior estimated, intercept by shares": "estimated prior, `--intercept shares`",
}
DASH = "–"
Cell = tuple[str, int, int, float]


class Value(NamedTuple):
    """A mean over seeds, in percent; without a standard deviation where there is one seed."""

    mean: float
    std: float | None
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ± {self.std:.2f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int]) -> str:
    aligned = set(right)
    marks = ["---:" if place in aligned else "---" for place in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, marks, *rows))


def cells() -> list[Cell]:
    """The paper's rows on MNIST and FashionMNIST."""
    return [(data, *map(int, spec.split(":")), prior) for data, spec, prior in product(DATA, TUPLES, PRIORS)]  # type: ignore[misc]


def place(cell: Cell) -> list[str]:
    data, n, m, prior = cell
    return [NAMES[data], f"({n},{m})", f"{prior:g}"]


def value_of(store: TrainingStore, recipe: str, cell: Cell, column: str, metric: str = "accuracy") -> Value | None:
    """The mean over the stored trainings, or the earlier mean if it has more seeds."""
    column = SAME.get(recipe, {}).get(column, column)
    found = [100 * one[metric] for one in store.of_cell(recipe, cell, column)]
    earlier = store.mean_of(recipe, cell, column)
    if earlier is not None and len(earlier["seeds"]) > len(found):
        mean, std = earlier[metric]
        return Value(100 * mean, 100 * std, len(earlier["seeds"]))
    if not found:
        return None
    return Value(float(np.mean(found)), float(np.std(found, ddof=1)) if len(found) > 1 else None, len(found))


def of_paper(cell: Cell) -> dict[str, float]:
    """The paper's accuracies of one row, in percent, by method."""
    found = [
        one for one in paper_cells() if one.metric == "accuracy" and (one.dataset, one.n, one.m, one.prior) == cell
    ]
    return {one.method: 100 * one.mean for one in found}


def count_table(store: TrainingStore) -> str:
    """`count` and its upper bound, beside the best cell of the paper's row: the means that the conclusions are of.

    Later trainings of the same cells are in the accuracy table.
    """
    earlier = TrainingStore(means=store.means)
    rows, short = [], {method: column for column, (_, method) in PAPER_COLUMNS.items()}
    for cell in cells():
        values = [
            value_of(earlier, "ours", cell, column, metric)
            for column, metric in product(OWN_COLUMNS, ("accuracy", "accuracy_at_prior"))
        ]
        paper = of_paper(cell)
        best = max(paper, key=lambda method: paper[method])
        shown = [DASH if value is None else str(value) for value in values]
        rows.append([*place(cell), *shown, f"{paper[best]:.2f} (`{short[best]}`)"])
    header = ["data", "(n,m)", "π", "accuracy", "at prior π", "supervised", "at prior π", "best cell of the paper"]
    days = sorted({one["measured"] for one in store.means})
    commits = sorted({one["commit"] for one in store.means})
    return table(header, rows, range(2, 8)) + f"\n\n{measured(days, commits)}"


def accuracy_table(store: TrainingStore, recipe: str) -> str:
    """The paper's seven columns, ours / the paper's; beside our recipe `count` and its upper bound."""
    if not any(key.recipe == recipe for key in store.trainings):
        return "No row of this table has been measured yet."
    own = OWN_COLUMNS if recipe == "ours" else {}
    rows = []
    for cell in cells():
        paper, row = of_paper(cell), place(cell)
        for column, (_, method) in PAPER_COLUMNS.items():
            value = value_of(store, recipe, cell, column)
            row.append(f"{DASH if value is None else value} / {paper[method]:.2f}")
        row += [str(value_of(store, recipe, cell, column) or DASH) for column in own]
        rows.append(row)
    header = ["data", "(n,m)", "π", *(name for name, _ in PAPER_COLUMNS.values()), *own.values()]
    return table(header, rows, range(2, len(header))) + "\n\n" + seeds_and_verdicts(store, recipe)


def epochs_table(store: TrainingStore) -> str:
    """ABS by the literal recipe after its first epochs and at its end, beside the paper's cell."""
    by_epochs = {1: "literal-1", 3: "literal-3", 10: "literal-10", 100: "literal"}
    rows, above, of_data, best, falls = [], Counter[str](), Counter[str](), Counter[int](), []
    for cell in cells():
        values = {epochs: value_of(store, recipe, cell, "abs") for epochs, recipe in by_epochs.items()}
        known = {epochs: value.mean for epochs, value in values.items() if value is not None}
        if not known:
            continue
        paper, top, data = (
            of_paper(cell)["ure+abs/source"],
            max(known, key=lambda epochs: known[epochs]),
            NAMES[cell[0]],
        )
        best[top] += 1
        of_data[data] += 1
        above[data] += known[top] >= paper
        if {1, 100} <= known.keys():
            falls.append(known[1] - known[100])
        rows.append([*place(cell), *(str(value or DASH) for value in values.values()), f"{paper:.2f}"])
    if not rows:
        return "Not measured."
    header = ["data", "(n,m)", "π", *(f"after {epochs}" for epochs in by_epochs), "the paper's ABS"]
    counted = "; ".join(f"after {epochs} in {rows}" for epochs, rows in sorted(best.items()))
    reached = ", ".join(f"{above[data]} of {of_data[data]} rows of {data}" for data in of_data)
    fallen = f"{min(falls):+.1f} to {max(falls):+.1f} points in {len(falls)} rows" if falls else "not measured"
    return (
        table(header, rows, range(2, len(header)))
        + f"\n\n- The best of these epochs: {counted} rows.\n"
        + f"- After 1 epoch minus after 100: {fallen}.\n"
        + f"- It is at or above the paper's cell in {reached}. {DASH}: not measured."
    )


def seeds_and_verdicts(store: TrainingStore, recipe: str) -> str:
    """How many seeds each column has, and in how many rows it is at or above the paper's cell."""
    lines = []
    for column, (name, method) in PAPER_COLUMNS.items():
        values = [(value_of(store, recipe, cell, column), of_paper(cell)[method]) for cell in cells()]
        known = [(value, paper) for value, paper in values if value is not None]
        if not known:
            lines.append(f"- {name}: not measured.")
            continue
        above = sum(value.mean >= paper for value, paper in known)
        differences = [value.mean - paper for value, paper in known]
        low, high = min(differences), max(differences)
        lines.append(
            f"- {name}: {len(known)} of {len(values)} rows, {seeds_of([value.seeds for value, _ in known])}; "
            f"at or above the paper's cell in {above}, differences {low:+.1f} to {high:+.1f} points."
        )
    commits = sorted({one["commit"] for key, one in store.trainings.items() if key.recipe == recipe})
    code = ", ".join(f"`{commit}`" for commit in commits)
    return "\n".join([*lines, f"- Code: {code or DASH}. {DASH}: not measured."])


def seeds_of(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low} seed{'s' if low > 1 else ''} each" if low == high else f"{low} to {high} seeds"


def measured(days: Sequence[str], commits: Sequence[str]) -> str:
    return f"Measured {' and '.join(days)}, at commit {', '.join(f'`{one}`' for one in commits)}."


def earlier_table(name: str, tables: dict[str, Any]) -> str:
    """A table that was measured earlier, with its day and the commit that added it."""
    kept = tables[name]
    return (
        table(kept["header"], kept["rows"], kept["right"])
        + f"\n\nMeasured {kept['measured']}, by code up to commit `{kept['commit']}`."
    )


def small_data_table(store: TrainingStore) -> str:
    """`ure+abs` with the earlier defaults (sixteen batches, thirty epochs) and the present ones, on the same tuples."""
    before, after = (paired(store, name) for name in (BEFORE, "abs"))
    places = sorted(before.keys() & after.keys())
    if not places:
        return "Not measured."
    rows = []
    for cell in dict.fromkeys(place[:-1] for place in places):
        of_cell = [one for one in places if one[:-1] == cell]
        shown = [[100 * kept[one]["accuracy"] for one in of_cell] for kept in (before, after)]
        ranked = [[kept[one]["auroc"] for one in of_cell] for kept in (before, after)]
        accuracies = [f"{np.mean(values):.1f}" for values in shown]
        aurocs = [f"{np.mean(values):.3f}" for values in ranked]
        rows.append([*place(cell)[1:], str(len(of_cell)), *accuracies, *aurocs])
    header = ["(n,m)", "π", "seeds", "accuracy, before", "after", "AUROC, before", "after"]
    said = [f"- {difference(before, after, places, metric)}" for metric in ("accuracy", "auroc")]
    compared = TrainingStore(values[one] for values in (before, after) for one in places)
    return (
        table(header, rows, range(1, 7))
        + "\n\nAfter minus before, mean ± standard error over cells and seeds:\n\n"
        + "\n".join([*said, f"- Code: {code_of(compared)}."])
    )


def options_table(store: TrainingStore) -> str:
    """`ure+abs` with an estimated prior and with the intercept by shares, compared with the known prior and neither."""
    plain = paired(store, "abs")
    rows = []
    for name in ("abs", *OPTIONS):
        values = paired(store, name)
        places = sorted(plain.keys() & values.keys())
        if not places:
            continue
        means = [np.mean([values[one][metric] for one in places]) for metric in METRICS[:3]]
        shown = [f"{100 * means[0]:.1f}", f"{100 * means[1]:.1f}", f"{means[2]:.3f}"]
        beside = [difference(plain, values, places, metric) if name != "abs" else DASH for metric in METRICS[:2]]
        rows.append([OPTIONS.get(name, "known prior"), str(len(places)), *shown, *beside])
    if len(rows) < 2:
        return "Not measured."
    header = ["`ure+abs`", "trainings", "accuracy", "at π", "AUROC", "accuracy minus the first row", "at π"]
    return table(header, rows, range(1, 7))


def adaptive_table(store: TrainingStore, data: Sequence[str] = ("digits",)) -> str:
    """Adaptive clamps compared with `abs` and `relu`, over the cells and seeds that all of them have."""
    variants = [name for name in ADAPTIVE if paired(store, name, data)]
    kept = {name: paired(store, name, data) for name in ("abs", "relu", *variants)}
    places = sorted(set.intersection(*(set(one) for one in kept.values())))
    if not variants or not places:
        return "Not measured."
    rows = []
    for name, values in kept.items():
        accuracy, auroc = ([values[one][metric] for one in places] for metric in ("accuracy", "auroc"))
        beside = [
            difference(kept[other], values, places, "accuracy") if other != name else DASH for other in ("abs", "relu")
        ]
        spread = np.sqrt(
            np.mean([np.var(of_cell, ddof=1) for of_cell in by_cell(values, places) if len(of_cell) > 1] or [np.nan])
        )
        scatter = DASH if np.isnan(spread) else f"{100 * spread:.1f}"
        rows.append(
            [
                ADAPTIVE.get(name, f"`{name}`"),
                f"{100 * np.mean(accuracy):.1f}",
                scatter,
                f"{np.mean(auroc):.3f}",
                *beside,
            ]
        )
    header = [
        "clamp",
        "accuracy",
        "standard deviation over seeds",
        "AUROC",
        "accuracy minus that of `abs`",
        "minus that of `relu`",
    ]
    seeds = sorted({one[-1] for one in places})
    number, named = len({one[:-1] for one in places}), ", ".join(map(str, seeds))
    names = " and ".join(NAMES.get(one, one) for one in data if one in {place[0] for place in places})
    said = f"{len(places)} trainings each: {number} cells of {names}, seed{'s' if len(seeds) > 1 else ''} {named}."
    shown = TrainingStore(values[one] for values in kept.values() for one in places)
    return table(header, rows, range(1, 6)) + f"\n\n{said} Code: {code_of(shown)}."


def of_seeds(store: TrainingStore, *, chosen_on: bool) -> TrainingStore:
    """The trainings of the seeds that variants were chosen on, or of the others."""
    return TrainingStore(one for key, one in store.trainings.items() if (key.seed in CHOICE_SEEDS) == chosen_on)


def adaptive_rows(paper: TrainingStore, clamps: TrainingStore) -> str:
    """Adaptive clamps on the paper's rows by our recipe, beside `abs` and `relu` of the accuracy table."""
    of_ours = {key: one for key, one in (paper.trainings | clamps.trainings).items() if key.recipe == "ours"}
    return adaptive_table(TrainingStore(of_ours.values()), DATA)


def paired(
    store: TrainingStore, column: str, data: Sequence[str] = ("digits",)
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The trainings of one variant on these data, by cell and seed."""
    found = {key: one for key, one in store.trainings.items() if key.data in data and key.column == column}
    return {(*key[1:5], key.seed): one for key, one in found.items()}


def by_cell(values: dict[tuple[Any, ...], dict[str, Any]], places: Sequence[tuple[Any, ...]]) -> list[list[float]]:
    return [
        [values[one]["accuracy"] for one in places if one[:-1] == cell]
        for cell in dict.fromkeys(one[:-1] for one in places)
    ]


def difference(before: Any, after: Any, places: Sequence[tuple[Any, ...]], metric: str) -> str:
    """The mean paired difference with its standard error, and how often it is above 0."""
    values = np.array([after[one][metric] - before[one][metric] for one in places])
    percent = metric.startswith("accuracy")
    scale, digits, unit = (100, 1, " points") if percent else (1, 3, f" of {metric.upper()}")
    error = scale * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    mean = f"{scale * values.mean():+.{digits}f} ± {error:.{digits}f}{unit}"
    return f"{mean}, better in {(values > 0).sum()} of {len(values)}"


def code_of(store: TrainingStore) -> str:
    return ", ".join(f"`{commit}`" for commit in sorted({one["commit"] for one in store.trainings.values()}))


def regions() -> dict[str, Callable[[], str]]:
    """The content between each pair of markers, by name."""
    paper = TrainingStore.load(FOLDER / "paper.yaml")
    clamps = TrainingStore.load(FOLDER / "clamps.yaml")
    earlier: dict[str, Any] = yaml.safe_load((FOLDER / "earlier.yaml").read_text(encoding="utf-8"))
    found: dict[str, Callable[[], str]] = {
        "count": lambda: count_table(paper),
        "accuracy-ours": lambda: accuracy_table(paper, "ours"),
        "accuracy-literal": lambda: accuracy_table(paper, "literal"),
        "epochs": lambda: epochs_table(paper),
        "small-data": lambda: small_data_table(of_seeds(clamps, chosen_on=False)),
        "small-data-options": lambda: options_table(of_seeds(clamps, chosen_on=False)),
        "adaptive-chosen": lambda: adaptive_table(of_seeds(clamps, chosen_on=True)),
        "adaptive-rows": lambda: adaptive_rows(paper, clamps),
        "adaptive": lambda: adaptive_table(of_seeds(clamps, chosen_on=False)),
    }
    return found | {name: lambda name=name: earlier_table(name, earlier) for name in earlier}  # type: ignore[misc]


def render(text: str) -> str:
    for name, content in regions().items():
        text = with_region(text, name, f"\n{content()}\n")  # Markdown wants blank lines around a table
    return text


def main() -> None:
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
