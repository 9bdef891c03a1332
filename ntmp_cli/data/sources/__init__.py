"""One file per data source; each registers itself in `ntmp_cli.data.labelled.datasets`."""
