"""An output is refused where it is an input, lies inside one, or holds one, whatever links say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ntmp_cli.artifacts import Plan, existing_output, publishing, refuse_overlap
from ntmp_cli.errors import UsageError


@pytest.mark.parametrize(
    ("out", "how"),
    [
        ("data/tuples", "is the input data/tuples itself"),
        ("data/other/../tuples", "is the input data/tuples itself"),
        ("data/tuples/new/deep", "lies inside the input data/tuples"),
        ("data", "contains the input data/tuples"),
        (".", "contains the input data/tuples"),
        ("link", "is the input data/tuples itself"),
        ("link/new", "lies inside the input data/tuples"),
        ("above/tuples/new", "lies inside the input data/tuples"),
    ],
)
def test_what_shares_files_with_an_input_is_refused(out, how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data/tuples").mkdir(parents=True)
    Path("link").symlink_to("data/tuples")
    Path("above").symlink_to("data")
    with pytest.raises(UsageError) as caught:
        refuse_overlap(Path(out), [Path("../elsewhere"), Path("data/tuples")])
    assert caught.value.message == f"{Path(out)}: {how}, and inputs are never changed"
    assert caught.value.hint == "Write to another place, outside of every input."


@pytest.mark.parametrize("out", ["data/tuples-2", "data/tuple", "data/.tuples", "data/run", "elsewhere"])
def test_what_lies_beside_an_input_is_not(out, tmp_path):
    (tmp_path / "data" / "tuples").mkdir(parents=True)
    refuse_overlap(tmp_path / out, [tmp_path / "data" / "tuples"])


def test_a_link_to_an_input_names_the_same_input(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(UsageError, match=f"is the input {tmp_path / 'link'} itself"):
        refuse_overlap(tmp_path / "real", [tmp_path / "link"])


def test_links_in_a_circle_are_no_reason_to_fail(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    refuse_overlap(tmp_path / "a" / "out", [tmp_path / "tuples"])


def test_of_a_command_that_makes_folders_only_those_count(tmp_path):
    inputs = [tmp_path / "study" / "config.yaml"]
    refuse_overlap(tmp_path / "study", inputs, ("runs", "report"))
    with pytest.raises(UsageError, match="contains the input"):
        refuse_overlap(tmp_path, inputs, ("runs", "study"))
    with pytest.raises(UsageError, match="lies inside the input"):
        refuse_overlap(tmp_path / "tuples" / "study", [tmp_path / "tuples"], ("runs",))


@pytest.mark.parametrize("if_exists", ["fail", "skip", "overwrite", "refresh"])
def test_publishing_knows_its_inputs_before_and_after_the_work(if_exists, put, tmp_path):
    old = put(tmp_path / "evaluation")
    plan = Plan("report", {}, None, (), (tmp_path / "evaluation",))
    with pytest.raises(UsageError, match="and inputs are never changed"):
        existing_output(tmp_path / "evaluation", plan, if_exists)
    with (
        pytest.raises(UsageError, match="and inputs are never changed"),
        publishing(tmp_path / "evaluation", plan, if_exists=if_exists),
    ):
        pytest.fail("the work began")
    old.verify()
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation"]


def test_where_inputs_lie_is_not_recorded(tmp_path):
    here, there = (Plan("run", {"epochs": 1}, 0, (), (tmp_path / name,)) for name in ("here", "there"))
    assert here == there
    assert here.to_bytes() == there.to_bytes()
    assert b"here" not in here.to_bytes()
