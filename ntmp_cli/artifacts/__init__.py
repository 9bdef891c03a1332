"""Everything about the disk: manifests, atomic publishing, verified reading, HDF5 shards."""

from ntmp_cli.artifacts.manifest import Artifact, Plan, content_sha256, describe_input, open_artifact
from ntmp_cli.artifacts.overlap import refuse_overlap
from ntmp_cli.artifacts.publish import IfExists, Staging, kept_output, publishing, sole_user

__all__ = [
    "Artifact",
    "IfExists",
    "Plan",
    "Staging",
    "content_sha256",
    "describe_input",
    "kept_output",
    "open_artifact",
    "publishing",
    "refuse_overlap",
    "sole_user",
]
