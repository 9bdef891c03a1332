"""One thin file per subcommand: parse, call its stage, show the result."""
