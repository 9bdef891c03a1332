"""The paper's cells beside an evaluation's, matched by data set, (n, m), prior, method and metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.comparisons import MethodVariant, method_variant_of
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of
from ntmp_cli.reporting.formatting import in_percent, metric_cell, metric_number, signed
from ntmp_cli.reporting.rendering import Column, Table, TableCell


@dataclass(frozen=True)
class PaperCell:
    """One number of the paper, as a fraction. A setting that the paper does not state is None and matches all."""

    dataset: str
    method: str
    metric: str
    mean: float
    std: float | None
    n: int | None = None
    m: int | None = None
    prior: float | None = None
    gap: float | None = None
    frozen: bool = False


@dataclass(frozen=True)
class RunSetting:
    """Facts about the runs of a cell that a summary lacks: operating gap, and whether the encoder is frozen."""

    gap: float
    frozen: bool


@cache
def paper_cells() -> tuple[PaperCell, ...]:
    """Every number of the paper's result tables."""
    text = files("ntmp_cli.reporting").joinpath("paper_cells.yaml").read_text(encoding="utf-8")
    return tuple(_cells(yaml.safe_load(text)))


@cache
def paper_methods() -> frozenset[str]:
    """The methods of the paper, by the names that our tables have for them."""
    return frozenset(cell.method for cell in paper_cells())


def _cells(document: Mapping[str, Any]) -> Iterator[PaperCell]:
    accuracy = document["accuracy"]
    for cell in accuracy["cells"]:
        place = {key: cell[key] for key in ("dataset", "n", "m", "prior")}
        for method, (mean, std) in zip(accuracy["methods"], cell["values"], strict=True):
            yield PaperCell(**place, method=method, metric="accuracy", mean=mean / 100, std=std / 100)
    for name in ("frozen_encoder", "operating_gap"):
        dataset = document[name]["dataset"]
        for cell in document[name]["cells"]:
            numbers = {key: value for key, value in cell.items() if isinstance(value, list)}
            for metric, (mean, std) in numbers.items():
                yield PaperCell(
                    dataset, cell["method"], metric, mean, std, gap=cell.get("gap"), frozen=name == "frozen_encoder"
                )


def paper_column(entry: MethodVariant) -> tuple[int, MethodVariant]:
    """Where a method stands in the paper's tables, whatever its clamps' scope; our own methods come after them."""
    columns = tuple(dict.fromkeys(cell.method.removesuffix("/source") for cell in paper_cells()))
    name = entry.method.removesuffix("/source")
    return columns.index(name) if name in columns else len(columns), entry


def counterparts(row: SummaryRow, setting: RunSetting | None) -> list[PaperCell]:
    """The paper's cells of the row's method.

    For a clamp per class, which the paper lacks, the cells of the same clamp per source; for any other method that the
    paper lacks, the best cell of the same setting. Oracles have no cell.
    """
    matching, known = [cell for cell in paper_cells() if matches(cell, row, setting)], paper_methods()
    for name in (row["method"], f"{row['method']}/source"):
        if name in known or row["is_oracle"]:
            return [cell for cell in matching if cell.method == name]
    return sorted(matching, key=lambda cell: cell.mean, reverse=not facts_of(row["metric"]).lower_is_better)[:1]


def matches(cell: PaperCell, row: SummaryRow, setting: RunSetting | None) -> bool:
    """Whether the paper's cell has the setting of the row, by any method, as far as the paper states it."""
    named = (row["dataset"], row["metric"]) == (cell.dataset, cell.metric)
    if not named or row["tuples"] != f"{row['n']}:{row['m']}":  # mixtures, or tuples made with other settings
        return False
    if cell.n is not None:
        return (row["n"], row["m"], row["prior"]) == (cell.n, cell.m, cell.prior)
    if setting is None:
        return False
    return setting.frozen if cell.frozen else not setting.frozen and cell.gap == round(setting.gap, 2)


def beside_the_paper(
    summary: Sequence[SummaryRow], facts: Mapping[tuple[DataCell, MethodVariant], RunSetting], *, title: str
) -> Table:
    """A row per cell that both have: ours, the paper's, the difference. Blocks are data set, tuples and prior."""
    blocks: dict[DataCell, list[tuple[TableCell, ...]]] = {}
    unknown_setting = other_method = on_features = False
    for row in summary:
        cell, entry = cell_of(row), method_variant_of(row)
        setting = facts.get((cell, entry))
        for paper_cell in counterparts(row, setting):
            # The paper's table of frozen encoders has no accuracy; its accuracies are those of networks on pixels.
            encoded = setting is not None and setting.frozen and not paper_cell.frozen
            blocks.setdefault(cell, []).append(_line(row, entry, paper_cell, encoded=encoded))
            unknown_setting = unknown_setting or paper_cell.n is None
            other_method = other_method or paper_cell.method != entry.method
            on_features = on_features or encoded
    if not blocks:
        known, methods = (sorted({getattr(cell, name) for cell in paper_cells()}) for name in ("dataset", "method"))
        raise UsageError(
            "--compare paper: no cell of this evaluation is in the paper",
            hint=f"The paper has {', '.join(known)}, tuples 3:1, 5:2, 7:2, priors 0.2, 0.5, 0.8 and the methods "
            f"{', '.join(methods)}; or leave it out.",
        )
    sentences = [
        f"{title.rstrip('.')}: beside the paper",
        "Mean ± standard deviation; difference: ours minus the paper's, in percentage points for accuracy",
        "The paper's single runs are not known, so no difference is tested",
    ]
    if other_method:
        sentences.append(
            "Methods that the paper lacks are marked and compared with the named cell of the paper: for a clamp per "
            "class the same clamp per source, otherwise the paper's best method in the same setting"
        )
    if on_features:
        sentences.append("On features: ours is trained on the features of a frozen encoder, the paper's on pixels")
    if unknown_setting:
        sentences.append("For ranking and calibration the paper names the gap or the encoder, but not (n, m) and π")
    columns = (
        Column("dataset", ("dataset",)),
        Column("tuples", ("tuples", "n", "m")),
        Column("π", ("prior",), numeric=True),
        Column("method", ("method", "variant")),
        Column("method of", ("method_of",)),
        Column("metric", ("metric",)),
        Column("seeds", ("seeds",), numeric=True),
        Column("ours", ("mean", "std", "undefined", "ci_low", "ci_high"), numeric=True),
        Column("paper", ("paper_mean", "paper_std", "paper_method"), numeric=True),
        Column("difference", ("difference",), numeric=True),
    )
    return Table(". ".join(sentences) + ".", columns, tuple(tuple(block) for block in blocks.values()))


def _line(row: SummaryRow, entry: MethodVariant, paper_cell: PaperCell, *, encoded: bool) -> tuple[TableCell, ...]:
    metric, mean = row["metric"], row["mean"]
    spread = "" if paper_cell.std is None else f" ± {metric_number(metric, paper_cell.std)}"
    method = "" if paper_cell.method == entry.method else f" ({paper_cell.method})"
    source = ("the paper" if entry.method in paper_methods() else "ours") + (", on features" if encoded else "")
    unit = " (%)" if in_percent(metric) else ""
    return (
        TableCell(row["dataset"], (row["dataset"],)),
        TableCell(row["tuples"], (row["tuples"], row["n"], row["m"])),
        TableCell(f"{row['prior']:g}", (row["prior"],)),
        TableCell(str(entry), tuple(entry)),
        TableCell(source, (source,)),
        TableCell(metric + unit, (metric,)),
        TableCell(str(row["seeds"]), (row["seeds"],)),
        metric_cell(metric, row, best=False),
        TableCell(
            metric_number(metric, paper_cell.mean) + spread + method,
            (paper_cell.mean, paper_cell.std, paper_cell.method),
        ),
        TableCell("undefined", (float("nan"),))
        if mean is None
        else TableCell(signed(metric, mean - paper_cell.mean), (mean - paper_cell.mean,)),
    )
