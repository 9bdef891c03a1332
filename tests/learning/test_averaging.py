"""The averaged weights are those of the plain formula, and the averaged network is apart from the trained one."""

from __future__ import annotations

import numpy as np
import torch

from ntmp_cli.learning.averaging import WeightAverage
from ntmp_cli.learning.models import Scorer, build_scorer, predict

DIM = 4


def scorer(name: str) -> Scorer:
    return build_scorer(name, (DIM,), np.ones(DIM, dtype=np.float32), np.zeros(DIM, dtype=np.float32), 0)


def test_the_average_equals_a_plain_loop_over_updates() -> None:
    model = scorer("mlp").train()
    average = WeightAverage(model, 0.9)
    expected = {k: v.double().numpy().copy() for k, v in model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    for t in range(120):
        with torch.no_grad():
            for p in model.parameters():
                p += 0.1 * torch.randn(p.shape, generator=generator)
        model(torch.randn(16, DIM, generator=generator))
        average.update()
        decay = min(0.9, (1 + t) / (10 + t))
        for key, value in model.state_dict().items():
            now = value.double().numpy()
            expected[key] = decay * expected[key] + (1 - decay) * now if value.is_floating_point() else now
    state = average.model.state_dict()
    # BatchNorm statistics are averaged, its counter is copied.
    assert int(state["network.2.num_batches_tracked"]) == 120
    for key, value in expected.items():
        assert np.allclose(state[key].double().numpy(), value, atol=1e-4), key


def test_the_averaged_model_is_apart_from_the_trained_one() -> None:
    model = scorer("linear")
    average = WeightAverage(model, 0.9)
    assert average.model is not model
    assert not any(p.requires_grad for p in average.model.parameters())
    assert all(p.requires_grad for p in model.parameters())


def test_without_averaging_the_trained_model_itself_is_scored() -> None:
    model = scorer("linear")
    average = WeightAverage(model, 0.0)
    average.update()
    assert average.model is model


def test_averaging_goes_on_where_it_was_interrupted() -> None:
    """The decay depends on the number of updates, which a checkpoint keeps."""
    models = scorer("linear"), scorer("linear")
    whole, resumed = (WeightAverage(model, 0.9) for model in models)
    for step in range(6):
        for model in models:
            with torch.no_grad():
                for p in model.parameters():
                    p += 0.1
        if step == 3:
            weights, updates = resumed.model.state_dict(), resumed.updates
            assert updates == 3
            resumed = WeightAverage(models[1], 0.9)
            resumed.model.load_state_dict(weights)
            resumed.updates = updates
        whole.update()
        resumed.update()
    state, expected = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    assert resumed.updates == 6


def test_the_averaged_network_scores_in_evaluation_mode_without_gradients() -> None:
    model = scorer("mlp").train()
    average = WeightAverage(model, 0.9)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05
    x = torch.randn(7, DIM)
    scores = average.scores(x)
    assert np.allclose(scores.numpy(), predict(average.model, x.numpy()), atol=1e-6)
    assert not np.allclose(scores.numpy(), predict(model, x.numpy()), atol=1e-3)
    assert not scores.requires_grad
    assert model.training
