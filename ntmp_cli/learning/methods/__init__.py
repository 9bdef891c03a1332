"""One file per training method; importing the package's modules fills the registry."""
