"""An audit as lines, as a page, as a table of tuples and as a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.plain_text import without_formula
from ntmp_cli.reporting.plotting import DPI, PALETTE, figure_style, svg_and_png

SUSPICIOUS = ("tuple", "n", "recorded", "likeliest", "expected", "P(wrong)", "p", "p (BH)")
_BINS = 40


def sections(facts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Titles with their lines of name and text."""
    before, after = facts["before_training"], facts["after_training"]
    lines = {
        "training tuples": f"{before['tuples']:,}, mean rate {before['mean_rate']:.4f}",
        "prior of U": "unknown" if before["prior"] is None else f"{before['prior']:.4g}",
        "shared instances": f"{before['repeated_instances']:.1%} are in both halves of the tuples",
    }
    if before["identifiable"] is not None:
        lines["unbiased risk"] = f"{_can(before['identifiable']['unbiased_risk'])}, effective gap {before['gap']:.4f}"
        lines["count likelihood"] = _can(before["identifiable"]["count_likelihood"])
    lines |= {f"advice {number}": text for number, text in enumerate(before["advice"], 1)}
    yield "before training", lines
    if after is None:
        return
    noise, moved = after["count_noise"], after["drift"]
    spread = {} if after["spread"] is None else {"spread of tuples": _spread(after["spread"])}
    yield (
        "after training",
        {
            "flagged": f"{after['flagged']:,} of {after['tuples_judged']:,} tuples",
            "by p-values": f"{after['flagged_by_benjamini_hochberg']:,} after Benjamini–Hochberg",
            "counts off by one": _noise(noise),
            **spread,
            "drift of U": "unknown, there is no unlabeled pool"
            if moved is None
            else f"largest gap {moved['statistic']:.4f}, p = {moved['p']:.3g}, "
            f"as a mixture of prior {moved['prior_of_mixture']:.4f}; of {moved['of']}",
            **{f"expected {name}": expectation(one) for name, one in after["expected"].items()},
        },
    )


def expectation(metric: Mapping[str, Any]) -> str:
    """A metric that was estimated without labels, or why it was not."""
    if metric["value"] is None:
        return str(metric["reason"])
    low, high = metric["ci"]
    return f"{metric['value']:.2%}, interval {low:.2%} to {high:.2%}"


def _noise(noise: Mapping[str, Any]) -> str:
    low, high = noise["ci"]
    if noise["rate"] == 0:
        return f"at most {high:.2%}; exact counts explain the scores as well, so no count is flagged"
    return f"{noise['rate']:.2%}, interval {low:.2%} to {high:.2%}"


def _spread(spread: float) -> str:
    if spread == 0:
        return "none: given their features, members of a tuple are independent"
    return f"{spread:g}: log-odds of a tuple's members share an intercept with this standard deviation"


def _can(answer: Any) -> str:
    return "identifiable" if answer is True else "not identifiable" if answer is False else str(answer)


def suspicious_cells(row: Mapping[str, Any]) -> list[str]:
    """A suspicious tuple as the cells of a table."""
    name = f"{row['split']} {row['tuple']}" + (f" ({row['id']})" if "id" in row else "")
    numbers = [f"{row['expected']:.2f}", f"{row['wrong']:.3f}", f"{row['p']:.2g}", f"{row['p_adjusted']:.2g}"]
    return [name, str(row["n"]), str(row["count"]), str(row["likeliest"]), *numbers]


def to_markdown(facts: Mapping[str, Any]) -> str:
    """The page."""
    lines = ["# Audit\n"]
    for title, values in sections(facts):
        lines.append(f"## {title.capitalize()}\n")
        lines += [f"- {name}: {text}" for name, text in values.items()]
        lines.append("")
    after = facts["after_training"]
    if after is not None:
        lines += [f"- **warning**: {text}" for text in after["warnings"]]
        if after["most_suspicious"]:
            lines += [
                "\n## Most suspicious tuples\n",
                f"| {' | '.join(SUSPICIOUS)} |",
                "|" + " --- |" * len(SUSPICIOUS),
            ]
            lines += [
                f"| {' | '.join(suspicious_cells(row)).replace(chr(10), ' ')} |" for row in after["most_suspicious"]
            ]
        lines.append(
            "\nP(wrong) is the probability that the recorded count is not the true one, given scores of classifiers "
            "that never saw the tuple. p is the probability of a count at most as probable as the recorded one."
        )
    return "\n".join(lines) + "\n"


def most_suspicious_first(rows: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """The order in which to check counts: by P(wrong), or by the likelihood ratio if none is flagged."""
    return np.lexsort((-rows["ratio"], -rows["wrong"]))


def tuples_csv(rows: Mapping[str, NDArray[Any]]) -> bytes:
    """Every judged tuple, the most suspicious first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows)
    order = most_suspicious_first(rows)
    columns = [values[order] for values in rows.values()]
    for row in zip(*columns, strict=True):
        writer.writerow([_cell(value) for value in row])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, np.bool_):
        return str(int(value))
    return f"{value:.6g}" if isinstance(value, np.floating) else without_formula(str(value))


def audit_figure(
    facts: Mapping[str, Any],
    rows: Mapping[str, NDArray[Any]],
    mixture: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
) -> dict[str, bytes]:
    """P(wrong) by recorded count, p-values, and the pool beside the mixture of the tuples' classes; `svg` and `png`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    after = facts["after_training"]
    with figure_style():
        figure = Figure(figsize=(11, 3.6), dpi=DPI, layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        order = np.sort(rows["wrong"])[::-1]
        left.plot(np.arange(1, len(order) + 1), order, color=PALETTE[0])
        left.axvline(max(after["flagged"], 1), color=PALETTE[1], linestyle="--", label=f"{after['flagged']:,} flagged")
        left.set(
            xscale="log", xlabel="tuples, most suspicious first", ylabel="P(recorded count is wrong)", ylim=(0, 1.02)
        )
        left.set_title(f"count noise {after['count_noise']['rate']:.1%}", loc="left")
        left.legend(loc="lower left")
        middle.hist(rows["p"], np.linspace(0, 1, _BINS + 1).tolist(), color=PALETTE[0])
        middle.set(xlabel="p-value of the recorded count", ylabel="tuples", yscale="log")
        middle.set_title("p-values, if all counts were right", loc="left")
        if after["drift"] is None:
            right.set_axis_off()
        else:
            _plot_mixture(right, after["drift"], mixture)
        for axis in (left.xaxis, middle.yaxis, right.yaxis):
            axis.set_major_formatter(plain)
        return svg_and_png(figure)


def _plot_mixture(ax: Any, moved: Mapping[str, Any], mixture: tuple[Any, Any, Any]) -> None:
    inside, posterior, outside = mixture
    edges = np.linspace(0, 1, _BINS + 1)
    positive = np.histogram(inside, edges, weights=posterior)[0] / posterior.sum()
    negative = np.histogram(inside, edges, weights=1 - posterior)[0] / (1 - posterior).sum()
    prior = moved["prior_of_mixture"]
    ax.stairs(np.histogram(outside, edges)[0] / len(outside), edges, color=PALETTE[0], fill=True, alpha=0.35, label="U")
    mixed = prior * positive + (1 - prior) * negative
    ax.stairs(mixed, edges, color=PALETTE[1], label=f"classes of the tuples at {prior:.3f}")
    ax.set_yscale("log")
    ax.set(xlabel="probability at the tuples' rate", ylabel="share")
    ax.set_title(f"drift: p = {moved['p']:.3g}", loc="left")
    ax.legend()
