"""Tests that fail without the fix they were written for: each fix is taken out of a copy of the package.

    python tests/torture/removed_fixes.py              # all
    python tests/torture/removed_fixes.py --only 4     # those of one point

A fix is taken out by an exact replacement of source text; a text that is no longer there is an error. Figures go to
tests/torture/results/removed-fixes.json; a fix that is listed there is not tried again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from mutant_tests import copy_of_project, pytest_in  # noqa: E402

RESULTS = HERE / "results" / "removed-fixes.json"
FAILS = "fails without the fix"


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
        1, "a header in Latin-1", "ntmp_cli/data/user/csv_tables.py",
        "            self._first_lines.decode(\"utf-8\")\n        except UnicodeDecodeError as error:",
        "            pass\n        except ZeroDivisionError as error:",
        f"{HOSTILE}::test_latin_1_among_the_first_values_is_said_to_be_no_utf_8",
    ),
    Fix(
        6, "weights of another type than the network", "ntmp_cli/learning/restore.py",
        "        _require_types(weights, scorer)\n", "",
        f"{FORGED}::test_weights_of_another_type_are_refused[uint8-factor]",
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
        12, "too little memory", "ntmp_cli/app.py",
        "        if is_memory_error(error):", "        if False:",
        f"{WORDS}::test_too_little_memory_is_called_that",
    ),
    Fix(
        12, "images outside of the table's folder", "ntmp_cli/data/user/images.py",
        "    if not image_format.allow_outside:", "    if False:",
        f"{WORDS}::test_images_outside_of_the_tables_folder_need_a_permission",
    ),
    Fix(
        12, "absolute paths of images inside of the table's folder", "ntmp_cli/data/user/images.py",
        "is_relative_to(name) for name in", "is_relative_to(name) and not Path(path).is_absolute() for name in",
        f"{WORDS}::test_images_inside_of_the_tables_folder_need_no_permission",
    ),
    Fix(
        13, "a worker that is killed twice on one cell", "ntmp_cli/sweeps/engines/local.py",
        "            for _ in range(1 + RETRIES):", "            for _ in range(2):",
        "tests/sweeps/engines/test_local.py::test_a_call_whose_process_is_killed_is_repeated_as_often_as_on_a_cluster",
    ),
    Fix(
        14, "call stacks in an exported network", "ntmp_cli/learning/exporting.py",
        "    return _without_call_stacks(out.getvalue())", "    return out.getvalue()",
        "tests/pipeline/test_export_cli.py::test_an_export_names_no_path_of_the_machine",
    ),
    Fix(
        14, "the text of a tree in LightGBM's reader", "ntmp_cli/learning/tables/trees.py",
        "            self._booster = _loaded_booster(self._parsed, x.shape[1])",
        "            import lightgbm\n            self._booster = lightgbm.Booster(model_str=self._text)",
        "tests/learning/tables/test_boosting.py::test_lightgbm_reads_no_text_of_a_file",
    ),
    Fix(
        14, "a temporary folder that is removed before it is locked", "ntmp_cli/artifacts/locking.py",
        "            except FileNotFoundError:  # removed before it was opened\n                continue\n", "",
        "tests/artifacts/test_writing.py::"
        "test_a_temporary_that_another_process_removes_before_it_is_locked_is_made_again",
    ),
]  # fmt: skip


def outcome(fix: Fix, folder: Path) -> str:
    """Whether the test fails without the fix."""
    target = folder / fix.module
    source = target.read_text(encoding="utf-8")
    if source.count(fix.with_fix) != 1:
        return "the fix is not where it was"
    target.write_text(source.replace(fix.with_fix, fix.without), encoding="utf-8")
    try:
        ended = pytest_in(folder, [fix.test], [], 60)
        return FAILS if ended.code == 1 or ended.timed_out else "passes without the fix"
    finally:
        target.write_text(source, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, action="append", help="Number of a point; repeat for several.")
    parser.add_argument("--seconds", type=float, default=math.inf, help="Take out no fix after so many seconds.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    began = time.monotonic()
    known = json.loads(chosen.results.read_text()) if chosen.results.exists() else {"passed": [], "fixes": {}}

    def save() -> None:
        chosen.results.parent.mkdir(exist_ok=True)
        chosen.results.write_text(json.dumps(known, indent=1) + "\n")

    with tempfile.TemporaryDirectory(prefix="removed-") as name:
        folder = copy_of_project(ROOT, Path(name) / "project")
        for fix in FIXES:
            if (chosen.only and fix.point not in chosen.only) or fix.about in known["fixes"]:
                continue
            if time.monotonic() - began > chosen.seconds:
                break
            how = outcome(fix, folder)
            if how == FAILS and fix.test not in known["passed"]:
                if pytest_in(folder, [fix.test], [], 300).code:
                    raise SystemExit(f"{fix.test} fails with the fix")
                known["passed"].append(fix.test)
            known["fixes"][fix.about] = {"point": fix.point, "test": fix.test, "outcome": how}
            print(f"{fix.point} {fix.about}: {how}", flush=True)  # noqa: T201
            save()
    return 0 if all(entry["outcome"] == FAILS for entry in known["fixes"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
