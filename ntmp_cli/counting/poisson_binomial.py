"""The law of a tuple's count given scores, its gradient and its posterior.

For scores z_i = logit P(y_i=1 | x_i) the labels of a tuple are independent, and its count Σy is Poisson-binomial. With
an observation L (see `observations`), p_i = σ(z_i) and q_i = σ(−z_i), two tables over members and counts are enough
(Eqs. 22–25):

    E_i[k] = P(k positives among the first i members)      E_{i+1}[k] = q_i E_i[k] + p_i E_i[k−1]
    B_i[k] = P(observation | k among the first i)          B_i[k] = q_i B_{i+1}[k] + p_i B_{i+1}[k+1],    B_n = L
    P(observation | z) = B_0[0],      P(observation, y_i=1 | z) = p_i Σ_k E_i[k] B_{i+1}[k+1]
    ∂ log P(observation | z) / ∂z_i = P(y_i=1 | z, observation) − σ(z_i)

All terms are probabilities, so sums lose no digits and products that underflow are negligible, as long as B_0[0] itself
is not tiny. Tuples where it is are computed again in logarithms. A tuple is counted by its rarer class, so that exact
counts cost O(n·min(m, n−m)). Everything is in double precision. Tuples of more than a few hundred members are computed
by `large`, in time and memory linear in their members; so are those of `presence`, which have a closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.counting.large import large_tuple
from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.observations import CountGroup, CountObservations

# Terms below the smallest double (1e-308) are lost; beside a probability above this they do not matter.
TINY = 1e-200
# Cells of a table that stay in the processor's cache.
CACHED = 2**16


def count_log_prob(z: NDArray[np.floating[Any]], observed: CountObservations) -> Floats:
    """log P(observation | z) of every tuple (Eq. 22): scores of shape (…, instances) give (…, tuples)."""
    if observed.some is not None:
        from ntmp_cli.counting.presence import presence_log_prob  # scoring new rows does not need it

        return presence_log_prob(_double(z, observed), observed, observed.some)
    scores = _scores(z, observed)
    rows = scores.reshape(-1, scores.shape[-1])
    log_prob = np.empty((len(rows), len(observed)))
    for group in observed.groups:
        # Several rows of scores are further columns of the same tables.
        step = max(1, CACHED // group.target.size)
        for first in range(0, len(rows), step):
            block = slice(first, first + step)
            log_prob[block, group.which] = _group_log_prob(rows[block], group)
    for t, members, likelihood in large_tuples(observed):
        for row, values in enumerate(np.asarray(z, dtype=np.float64).reshape(-1, observed.instances)):
            log_prob[row, t] = large_tuple(values[members], likelihood, with_posterior=False)[0]
    return log_prob.reshape(*scores.shape[:-1], len(observed))


def count_posterior(z: NDArray[np.floating[Any]], observed: CountObservations) -> Floats:
    """P(y_i=1 | z, observation) of every member, in a row (Eq. 24)."""
    return _sweep(z, observed)[1]


def count_gradient(z: NDArray[np.floating[Any]], observed: CountObservations) -> tuple[Floats, Floats]:
    """log P(observation | z) of every tuple and its derivative by the score of every member (Eq. 25)."""
    log_prob, posterior = _sweep(z, observed)
    return log_prob, posterior - expit(np.asarray(z, dtype=np.float64))


def count_law(z: Floats) -> Floats:
    """P(k positives), k = 0 … n, of tuples of one length (E of Eq. 23): log-odds of shape (…, n) give (…, n+1)."""
    p, q = expit(z)[..., None], expit(-z)[..., None]
    law = np.zeros((*z.shape[:-1], z.shape[-1] + 1))
    law[..., 0] = 1
    for i in range(z.shape[-1]):
        more = law[..., : i + 1] * p[..., i, :]
        law[..., : i + 1] *= q[..., i, :]
        law[..., 1 : i + 2] += more
    return law


def _double(z: NDArray[np.floating[Any]], observed: CountObservations) -> Floats:
    if z.shape[-1] != observed.instances:
        raise ValueError(f"{z.shape[-1]} scores of tuples with {observed.instances} members")
    return np.asarray(z, dtype=np.float64)


def _scores(z: NDArray[np.floating[Any]], observed: CountObservations) -> Floats:
    """Scores in double, those of mirrored tuples negated, and behind the last one −∞ for missing members."""
    z = _double(z, observed)
    scores = np.empty((*z.shape[:-1], observed.instances + 1))
    scores[..., :-1] = z if observed.signs is None else z * observed.signs
    scores[..., -1] = -np.inf
    return scores


def _group_log_prob(rows: Floats, group: CountGroup) -> Floats:
    """(R, T) log P(observation) of the tuples of a group, for R rows of scores."""
    z = np.moveaxis(rows[:, group.members], 0, -1).reshape(len(group.members), -1)
    wide = group.repeated(len(rows))
    log_prob, lost = _logs(_backward(expit(z), expit(-z), wide))
    if lost.any():
        log_prob[lost] = _in_logarithms(z[:, lost], wide.target[:, lost])[0]
    by_row: Floats = log_prob.reshape(-1, len(rows)).T
    return by_row


def _sweep(z: NDArray[np.floating[Any]], observed: CountObservations) -> tuple[Floats, Floats]:
    """Log-probability of every tuple and posterior of every member."""
    if observed.some is not None:
        from ntmp_cli.counting.presence import presence_posterior

        return presence_posterior(_double(z, observed), observed, observed.some)
    scores = _scores(z, observed)
    p, q = expit(scores), expit(-scores)
    # Members of large tuples come last: until then they are 0, since any bits could be in empty memory.
    log_prob, posterior = np.empty(len(observed)), np.zeros(observed.instances + 1)
    for group in observed.groups:
        probability, joint = _tables(p[group.members], q[group.members], group)
        logs, lost = _logs(probability)
        with np.errstate(divide="ignore", invalid="ignore"):
            joint /= probability
        if lost.any():
            logs[lost], joint[:, lost] = _in_logarithms(scores[group.members[:, lost]], group.target[:, lost])
        log_prob[group.which], posterior[group.members] = logs, joint
    posterior = posterior[:-1]
    if observed.signs is not None:
        np.subtract(1, posterior, out=posterior, where=observed.signs < 0)
    for t, members, likelihood in large_tuples(observed):
        log_prob[t], posterior[members] = large_tuple(np.asarray(z[members], dtype=np.float64), likelihood)
    return log_prob, posterior


def large_tuples(observed: CountObservations) -> Iterator[tuple[int, slice, Floats]]:
    """Position, members and L(k), k = 0 … n, of every tuple that is too large for a table."""
    for t in observed.large.tolist():
        n, start = int(observed.sizes[t]), int(observed.starts[t])
        yield t, slice(start, start + n), observed.likelihood_of_large(t)


def _tables(p: Floats, q: Floats, group: CountGroup) -> tuple[Floats, Floats]:
    """P(observation) (T,) and P(observation, y_i=1) (n, T) (Eq. 24)."""
    prefixes, joint = _forward(p, q, group), np.zeros_like(p)
    return _backward(p, q, group, prefixes, joint), joint


def _forward(p: Floats, q: Floats, group: CountGroup) -> list[Floats]:
    """E_i (Eq. 23) for every member i: a row per count, a column per tuple with more than i members."""
    most = len(group.target) - 1
    prefixes = _empty_tables([(min(i + 1, most), here) for i, here in enumerate(group.present)])
    prefixes[0][:] = 1
    for i, (low, here) in enumerate(zip(group.lowest[1:], group.present[1:], strict=True)):
        before, after, yes = prefixes[i][:, :here], prefixes[i + 1], p[i, :here]
        # Among the first i members are at most i positives, and the largest count is never continued.
        top, first = len(before), max(low, 1)
        np.multiply(before[low:], q[i, :here], out=after[low:top])
        if top < most:
            np.multiply(before[-1], yes, out=after[top])
        if first < top:
            after[first:top] += before[first - 1 : top - 1] * yes
    return prefixes


def _empty_tables(shapes: list[tuple[int, int]]) -> list[Floats]:
    """Empty tables in one allocation: many small ones would be returned to the system and requested at every call."""
    ends = np.cumsum([rows * columns for rows, columns in shapes]).tolist()
    memory = np.empty(ends[-1])
    return [
        memory[end - rows * columns : end].reshape(rows, columns)
        for end, (rows, columns) in zip(ends, shapes, strict=True)
    ]


def _backward(
    p: Floats, q: Floats, group: CountGroup, prefixes: list[Floats] | None = None, joint: Floats | None = None
) -> Floats:
    """B_0[0] (T,) (Eq. 23); with E also P(observation, y_i=1), into `joint` (Eq. 24)."""
    back, most = group.target[:, :0], len(group.target) - 1
    for i in reversed(range(len(p))):
        low, here, top = group.lowest[i], group.present[i], min(i + 1, most)
        if here > back.shape[1]:  # tuples whose last member is this one
            back = np.concatenate([back, group.target[:, back.shape[1] : here]], axis=1)
        grown = back[low + 1 : top + 1] * p[i, :here]
        if prefixes is not None and joint is not None and top:
            np.einsum("kt,kt->t", prefixes[i][low:], grown, out=joint[i, :here])
        kept = back[low : min(i, most) + 1]
        kept *= q[i, :here]
        kept[: top - low] += grown
    probability: Floats = back[0]
    return probability


def _logs(probability: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Logarithms, and which of them were lost to underflow."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(probability), ~(probability > TINY)


def _in_logarithms(z: Floats, target: Floats) -> tuple[Floats, Floats]:
    """The same tables in logarithms, −∞ where a count cannot be: log P(observation) (T,) and posteriors (n, T)."""
    log_p, log_q = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    prefixes = np.full((len(z), *target.shape), -np.inf)
    prefixes[0, 0] = 0
    for i in range(len(z) - 1):
        np.add(prefixes[i], log_q[i], out=prefixes[i + 1])
        prefixes[i + 1, 1:] = np.logaddexp(prefixes[i + 1, 1:], prefixes[i, :-1] + log_p[i])
    joint = np.empty_like(z)
    with np.errstate(divide="ignore", invalid="ignore"):
        back = np.log(target)
        for i in reversed(range(len(z))):
            grown = back[1:] + log_p[i]
            joint[i] = np.logaddexp.reduce(prefixes[i, :-1] + grown, axis=0, initial=-np.inf)
            back = back + log_q[i]
            back[:-1] = np.logaddexp(back[:-1], grown)
        return back[0], np.exp(joint - back[0])
