"""One function per stage: read artefacts, compute, publish. The CLI, `ntmp run` and Python call these."""
