"""What a registration says of its thing, and what artefacts say of plugins."""

from __future__ import annotations

import logging
import re
from hashlib import sha256
from pathlib import Path

import pytest

from ntmp_cli.commands.choices import names_of
from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.plugins import plugin_settings, require_plugins
from ntmp_cli.registry import REGISTRIES, Facts, MetricFacts, Registry

HASH = sha256(Path(__file__).read_bytes()).hexdigest()


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Registry[object, MetricFacts]:
    """A registry of metrics that has one of this file."""
    registry: Registry[object, MetricFacts] = Registry("metric", "ntmp_cli.errors", MetricFacts)
    monkeypatch.setitem(REGISTRIES, "metrics", registry)

    @registry.register("mine", lower_is_better=True)
    def mine(scored: object) -> float:
        """Mine."""
        return 0.0

    return registry


def test_an_entry_carries_its_facts_and_where_it_comes_from(mine: Registry[object, MetricFacts]) -> None:
    entry = mine.entry("mine")
    assert entry.facts == MetricFacts(lower_is_better=True)
    assert entry.source is not None
    assert (entry.source.name, entry.source.sha256) == ("test_registry.py", HASH)
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[entry.source.line - 1]
    assert line.strip() == '@registry.register("mine", lower_is_better=True)'
    assert mine.summaries() == {"mine": "Mine. [test_registry.py]"}


def test_what_comes_with_the_package_has_no_source() -> None:
    for kind, registry in REGISTRIES.items():
        assert {name for name, entry in registry.entries().items() if entry.source is not None} == set(), kind
    assert plugin_settings({"metrics": metrics.names(), "models": ["mlp", "torchvision:resnet18", None]}) == {}


def test_a_fact_that_the_kind_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="lower_is_better"):
        REGISTRIES["datasets"].register("mine", lower_is_better=True)
    assert REGISTRIES["datasets"].find("mine") is None


def test_facts_cannot_be_changed_later() -> None:
    with pytest.raises(AttributeError):
        metrics.entry("fpr").facts.lower_is_better = False  # type: ignore[misc]
    assert metrics.entry("ap").facts == MetricFacts(column=2)
    assert REGISTRIES["models"].entry("mlp").facts == Facts()


def test_settings_name_the_plugin_and_its_content(mine: Registry[object, MetricFacts]) -> None:
    assert plugin_settings({"metrics": ["mine"]}) == {"plugins": {"metric mine": f"test_registry.py sha256:{HASH}"}}


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ("metric other", "metric 'other' comes from the plugin a.py, which is not loaded"),
        ("colour red", "colour 'red' comes from the plugin a.py, which is not loaded"),
    ],
    ids=["unknown name", "unknown kind"],
)
def test_what_is_not_registered_is_named_with_its_plugin(
    recorded: str, message: str, mine: Registry[object, MetricFacts]
) -> None:
    with pytest.raises(UsageError, match=re.escape(f"run-0: {message}")):
        require_plugins({recorded: "a.py sha256:00"}, "run-0")


def test_a_plugin_that_has_changed_is_warned_of(
    mine: Registry[object, MetricFacts], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("ntmp_cli"), "propagate", True)
    require_plugins({"metric mine": f"test_registry.py sha256:{HASH}"}, "run-0")
    assert caplog.messages == []
    require_plugins({"metric mine": "test_registry.py sha256:00"}, "run-0")
    # As a set: under another test's logging configuration a record is captured twice.
    assert set(caplog.messages) == {
        "run-0: was made with another version of the plugin test_registry.py (metric 'mine')"
    }


def test_what_a_file_has_registered_can_be_forgotten(mine: Registry[object, MetricFacts]) -> None:
    mine.forget(lambda source: source.name == "elsewhere.py")
    assert mine.names() == ["mine"]
    mine.forget(lambda source: source.file == __file__)
    assert mine.names() == []


@pytest.mark.parametrize("kind", REGISTRIES)
def test_completion_knows_the_names_of_every_kind(kind: str) -> None:
    assert names_of(kind)() == REGISTRIES[kind].names() != []
