"""Tests that fail without the fix they were written for: each fix is taken out of a copy of the package.

    python tests/torture/removed_fixes.py              # all
    python tests/torture/removed_fixes.py --only 4     # those of one point

A fix is taken out by an exact replacement of source text; a text that is no longer there is an error. Figures go to
tests/torture/results/removed-fixes.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from mutant_tests import copy_of_project, pytest_in  # noqa: E402

RESULTS = HERE / "results" / "removed-fixes.json"


@dataclass(frozen=True)
class Fix:
    """What a file reads with the fix and without it, and the test that must notice."""

    point: int
    about: str
    module: str
    with_fix: str
    without: str
    test: str


HOSTILE, WORDS, FORGED = (
    "tests/data/test_hostile_files.py",
    "tests/pipeline/test_hostile_words.py",
    ("tests/pipeline/test_forged_artifacts.py"),
)
FIXES = [
    Fix(
        1, "a header in Latin-1", "ntmp_cli/data/user/table_files.py",
        "            self._first_lines.decode(\"utf-8\")\n        except UnicodeDecodeError as error:",
        "            pass\n        except ZeroDivisionError as error:",
        f"{HOSTILE}::test_latin_1_among_the_first_values_is_said_to_be_no_utf_8",
    ),
    Fix(
        2, "an array header that announces more than there is", "ntmp_cli/data/formats.py",
        "if min(shape, default=0) < 0 or dtype.itemsize * math.prod(shape) > present:", "if False:",
        f"{HOSTILE}::test_a_header_that_announces_more_than_there_is_is_refused_at_once",
    ),
    Fix(
        3, "a checkpoint on a full disk", "ntmp_cli/artifacts/checkpoints.py",
        "            with replacing(self.file) as partial, Sink(partial) as sink:",
        "            partial = self.file\n            with Sink(partial) as sink:",
        "tests/pipeline/test_full_disk.py::test_a_first_checkpoint_that_does_not_fit_ends_the_training_and_leaves_nothing",
    ),
    Fix(
        4, "a few bytes that unpack to gigabytes", "ntmp_cli/unpacking.py",
        "    if unpacked > (limit := unpack_limit(packed, least)):",
        "    if (limit := unpack_limit(packed, least)) and False:",
        f"{HOSTILE}::test_a_file_that_unpacks_to_too_much_is_refused",
    ),
    Fix(
        4, "images that are large together", "ntmp_cli/unpacking.py",
        "    if unpacked > (limit := unpack_limit(packed, least)):",
        "    if (limit := unpack_limit(packed, least)) and False:",
        f"{HOSTILE}::test_images_are_bounded_alone_and_together",
    ),
    Fix(
        5, "trainings that share an output share no checkpoint", "ntmp_cli/artifacts/checkpoints.py",
        "            if not self._owns_folder():", "            if False:",
        "tests/artifacts/test_checkpoints.py::test_of_several_trainings_with_one_output_the_first_keeps_checkpoints",
    ),
    Fix(
        6, "labels that are not 0 or 1", "ntmp_cli/artifacts/oracle.py",
        "labels.ndim != 1 or not np.isin(labels, (0, 1)).all()", "labels.ndim != 1",
        f"{FORGED}::test_labels_that_are_not_0_or_1_are_refused",
    ),
    Fix(
        6, "weights that are no numbers", "ntmp_cli/learning/restore.py",
        "if not bool(torch.isfinite(tensor).all())", "if False",
        f"{FORGED}::test_weights_that_are_no_numbers_are_refused",
    ),
    Fix(
        6, "scores that are no numbers", "ntmp_cli/artifacts/scores.py",
        " or not np.isfinite(values).all()", "",
        f"{FORGED}::test_scores_that_do_not_fit_or_are_no_numbers_are_refused",
    ),
    Fix(
        7, "weights that are no safetensors", "ntmp_cli/learning/restore.py",
        "except (SafetensorError, ValueError, TypeError, KeyError):", "except ZeroDivisionError:",
        f"{FORGED}::test_weights_that_are_no_safetensors_are_refused",
    ),
    Fix(
        8, "nesting, dates and digits of a configuration", "ntmp_cli/settings.py",
        "    except (yaml.YAMLError, ValueError, RecursionError) as error:", "    except yaml.YAMLError as error:",
        "tests/test_settings.py::test_what_no_configuration_can_be_is_refused",
    ),
    Fix(
        9, "what a killed writer left", "ntmp_cli/artifacts/writing.py",
        "        remove_stale(path)\n", "",
        "tests/artifacts/test_writing.py::test_what_a_killed_writer_left_is_removed_by_the_next_one",
    ),
    Fix(
        9, "half a figure on a full disk", "ntmp_cli/stages/inspect.py",
        "    with replacing(figure) as partial:", "    figure.parent.mkdir(parents=True)\n    for partial in [figure]:",
        "tests/pipeline/test_full_disk.py::test_a_full_disk_ends_a_stage_with_one_message_and_leaves_nothing[inspect]",
    ),
    Fix(
        10, "links in place of files", "ntmp_cli/artifacts/manifest.py",
        "if not _is_regular(path) or any(folder.is_symlink() for folder in folders):", "if False:",
        f"{FORGED}::test_links_inside_an_artefact_are_not_followed",
    ),
    Fix(
        10, "pipes and devices in place of data", "ntmp_cli/unpacking.py",
        "    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):",
        "    if stat.S_ISCHR(status.st_mode):",
        f"{HOSTILE}::test_pipes_and_devices_are_refused",
    ),
    Fix(
        11, "escape codes of a manifest", "ntmp_cli/plain_text.py",
        "    return _CONTROLS.sub(\"\\ufffd\", text.encode(\"utf-8\", \"backslashreplace\").decode())",
        "    return text",
        f"{WORDS}::test_escape_codes_of_a_manifest_do_not_reach_the_terminal",
    ),
    Fix(
        11, "ids that are formulas", "ntmp_cli/artifacts/table_writer.py",
        "block if self._raw else self._without_formulas(block)", "block",
        f"{WORDS}::test_ids_that_are_formulas_are_quoted_unless_asked_otherwise",
    ),
    Fix(
        12, "too little memory", "ntmp_cli/errors.py",
        "    return isinstance(error, MemoryError)\n", "    return False\n",
        f"{WORDS}::test_too_little_memory_is_called_that",
    ),
    Fix(
        12, "images outside of the table's folder", "ntmp_cli/data/user/images.py",
        "    if not image_format.allow_outside:", "    if False:",
        f"{WORDS}::test_images_outside_of_the_tables_folder_need_a_permission",
    ),
    Fix(
        13, "a worker that is killed twice on one cell", "ntmp_cli/sweeps/engines/local.py",
        "            for _ in range(1 + RETRIES):", "            for _ in range(2):",
        "tests/sweeps/engines/test_local.py::test_a_call_whose_process_is_killed_is_repeated_as_often_as_on_a_cluster",
    ),
]  # fmt: skip


def outcome(fix: Fix, folder: Path) -> str:
    """Whether the test passes with the fix and fails without it."""
    target = folder / fix.module
    source = target.read_text(encoding="utf-8")
    if source.count(fix.with_fix) != 1:
        return "the fix is not where it was"
    if pytest_in(folder, [fix.test], [], 300).code:
        return "fails with the fix"
    target.write_text(source.replace(fix.with_fix, fix.without), encoding="utf-8")
    try:
        return "fails without the fix" if pytest_in(folder, [fix.test], [], 300).code == 1 else "passes without the fix"
    finally:
        target.write_text(source, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, action="append", help="Number of a point; repeat for several.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    known = json.loads(chosen.results.read_text()) if chosen.results.exists() else {}
    with tempfile.TemporaryDirectory(prefix="removed-") as name:
        folder = copy_of_project(ROOT, Path(name) / "project")
        for fix in FIXES:
            if chosen.only and fix.point not in chosen.only:
                continue
            known[fix.about] = {"point": fix.point, "test": fix.test, "outcome": outcome(fix, folder)}
            print(f"{fix.point} {fix.about}: {known[fix.about]['outcome']}", flush=True)  # noqa: T201
            chosen.results.parent.mkdir(exist_ok=True)
            chosen.results.write_text(json.dumps(known, indent=1) + "\n")
    return 0 if all(entry["outcome"] == "fails without the fix" for entry in known.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
