"""Everything about the disk: manifests, atomic publishing, verified reading, HDF5 shards."""

from ntmp_cli.artifacts.locking import folder_lock
from ntmp_cli.artifacts.manifest import (
    Artifact,
    Plan,
    RunArtifact,
    TuplesArtifact,
    content_sha256,
    describe_input,
    open_artifact,
)
from ntmp_cli.artifacts.overlap import refuse_overlap
from ntmp_cli.artifacts.publish import IfExists, Staging, existing_output, publishing

__all__ = [
    "Artifact",
    "IfExists",
    "Plan",
    "RunArtifact",
    "Staging",
    "TuplesArtifact",
    "content_sha256",
    "describe_input",
    "existing_output",
    "folder_lock",
    "open_artifact",
    "publishing",
    "refuse_overlap",
]
