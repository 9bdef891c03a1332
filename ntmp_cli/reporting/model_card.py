"""The model card of a run: training data, assumptions, expected metrics, and use.

Markdown of one page. It depends only on the run and contains no dates and no paths, so that equal runs have equal
cards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ntmp_cli.reporting.rendering import escape_markdown

if TYPE_CHECKING:
    from ntmp_cli.artifacts.summaries import ExportSummary, RunSummary

# Smallest z of a certain orientation, the same as in `train`.
CERTAIN = 3.0
MOST_NAMES = 30
# Names of the columns of a table, perhaps only the first ones, and how many there are.
Columns = tuple[Sequence[str], int]
# The last section, which an export replaces by its own.
USE = "## Score new rows\n"
PRIOR_ORIGINS = {
    "given": "given by the user",
    "known": "known, because the tuples were simulated",
    "estimated": "estimated from the unlabeled pool",
    "tuples": "the share of positives in the tuples, because an unlabeled pool gave no estimate or there is none",
}


def run_card(run: RunSummary, expected: Mapping[str, Mapping[str, Any]], columns: Columns | None) -> str:
    """The card of a run. `columns` are those of a table, `expected` metrics or why they cannot be estimated."""
    new = "new-images" if len(run.instance.shape) == 3 else "new.csv"
    rows = "Every row gets a score, a probability and a label. `--prior` is for items with another share of positives."
    return "\n".join(
        [
            "# Model card\n",
            f"A classifier of single items in two classes. {_supervision(run)}\n",
            *_section("Training data", _data(run)),
            *_section("Classifier", _classifier(run)),
            *_section("Class prior", _prior(run)),
            "## Assumptions\n",
            *(f"- {line}" for line in _assumptions(run)),
            "\n## Expected quality\n",
            *_expected(run, expected),
            USE,
            *("```sh", f"ntmp predict RUN {new} --out scored.csv", "```\n"),
            rows,
            *_columns(columns),
        ]
    )


def export_card(
    of_run: str | None, export: ExportSummary, columns: Columns | None, features: Sequence[str] | None = None
) -> str:
    """The card of an exported classifier: that of its run, with another way to use it.

    `features` are names of the numbers that texts were encoded as, where the classifier takes these.
    """
    about = "# Model card\n\n" if of_run is None else of_run.partition(USE)[0]
    shape = " × ".join("rows" if size is None else str(size) for size in export.input.shape)
    lines = [
        f"{about}{USE}",
        f"`{export.file}` takes an array `{export.input.name}` of {shape} ({export.input.dtype}).",
        f"It gives {' and '.join(f'`{name}`' for name in export.outputs)} of every row.",
        f"Probabilities are for data with a share of {export.prior:.4g} positives.",
        f"Scores were divided by the temperature {export.temperature:.4g}. `export.json` has all details.",
        *_encoded(features),
        *_columns(columns),
    ]
    return "\n".join(lines)


def _section(title: str, facts: Mapping[str, str]) -> Iterable[str]:
    yield f"## {title}\n"
    yield "| | |\n| --- | --- |"
    yield from (f"| {name} | {escape_markdown(value)} |" for name, value in facts.items())
    yield ""


def _supervision(run: RunSummary) -> str:
    if run.is_oracle:
        return "It was trained on true labels, as an upper bound."
    return "It was trained on tuples of items. Only the number of positives in each tuple was known."


def _data(run: RunSummary) -> dict[str, str]:
    strata = run.task.strata
    tuples = sum(number for _, _, number in strata)
    items = sum(n * number for n, _, number in strata)
    return {
        "data set": run.dataset,
        "tuples": f"{tuples:,}, of {_range([n for n, _, _ in strata])} items ({items:,} items in all)",
        "counts of positives": f"{_range([m for _, m, _ in strata])}; {_kind_of_counts(run)}",
        "share of positives in training tuples": f"{run.tuple_rate:.4g}",
        "unlabeled pool": f"{run.task.unlabeled:,} items" if run.task.unlabeled else "none",
    }


def _kind_of_counts(run: RunSummary) -> str:
    if run.task.knowledge is not None:
        kinds = list(dict.fromkeys(run.task.knowledge.counts))
        more = "" if len(kinds) <= 5 else f" and {len(kinds) - 5} more"
        return f"recorded as {', '.join(kinds[:5])}{more} (the numbers are expected counts)"
    return f"off by one with probability {run.count_noise:g}" if run.count_noise else "taken as exact"


def _classifier(run: RunSummary) -> dict[str, str]:
    encoder = {} if run.encoder is None else {"encoder": run.encoder}
    shape = f"{'×'.join(map(str, run.features.shape))} {'features' if len(run.features.shape) == 1 else 'pixels'}"
    return {"method": run.method, "model": f"{run.model}, {run.parameters:,} parameters", **encoder, "input": shape}


def _prior(run: RunSummary) -> dict[str, str]:
    interval = {} if run.prior_ci is None else {"95 % interval": f"{run.prior_ci[0]:.3f} to {run.prior_ci[1]:.3f}"}
    return {"value": f"{run.trained_prior:.4g}", "source": PRIOR_ORIGINS[run.prior_source], **interval}


def _assumptions(run: RunSummary) -> Iterable[str]:
    source = "the unlabeled pool" if run.task.unlabeled else "the tuples"
    yield f"New items come from the same population as {source}."
    yield f"A share of {run.trained_prior:.4g} of the new items is positive. If not, pass another prior."
    if run.task.unlabeled and not run.is_oracle:
        yield "Tuples and pool differ only in their share of positives."
    if run.spread:
        yield f"Items of one tuple share an intercept with standard deviation {run.spread:.2g}."
    elif not run.is_oracle:
        yield "Given its features, the class of an item does not depend on the other items of its tuple."
    if run.orientation_z is not None:
        sure = "certain" if run.orientation_z >= CERTAIN else "uncertain: the classes may be exchanged"
        yield f"Positive scores mean the counted class: {sure} (z = {run.orientation_z:.1f})."


def _expected(run: RunSummary, expected: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    known = {name: metric for name, metric in expected.items() if metric["value"] is not None}
    if not known:
        reason = next(iter(expected.values()))["reason"]
        yield f"The accuracy on new items {reason}. Measure it on labelled items: `ntmp evaluate`.\n"
        return
    drawn = "the unlabeled pool" if run.task.unlabeled else "the tuples"
    yield f"On new items from the same population as {drawn}, of which a share of {run.trained_prior:.4g} is positive."
    yield "Estimated from the counts of tuples that the classifier did not see. No label was used.\n"
    yield "| metric | estimate | 95 % interval |\n| --- | ---: | --- |"
    for name, metric in known.items():
        low, high = metric["ci"]
        yield f"| {name} | {metric['value']:.1%} | {low:.1%} to {high:.1%} |"
    yield ""


def _encoded(features: Sequence[str] | None) -> Iterable[str]:
    if features is None:
        return
    shown = _listed(features)
    more = f" and {len(features) - MOST_NAMES:,} more" if len(features) > MOST_NAMES else ""
    yield "\nIt takes encoded features, not the raw columns: standardised numbers, and a 0 or 1 per category."
    yield "`mapping` in `export.json` says how columns become features. `ntmp predict` takes the raw columns."
    yield f"Features, in order: {shown}{more}."


def _listed(names: Sequence[str]) -> str:
    """The first names as JSON strings: they may hold commas."""
    return ", ".join(escape_markdown(json.dumps(name, ensure_ascii=False)) for name in names[:MOST_NAMES])


def _columns(columns: Columns | None) -> Iterable[str]:
    if columns is None:
        yield ""
        return
    names, total = columns
    shown = _listed(names)
    more = f" and {total - MOST_NAMES:,} more" if total > MOST_NAMES else ""
    yield f"\nColumns: {shown}{more}.\n"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
