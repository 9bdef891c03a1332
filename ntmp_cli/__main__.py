"""`python -m ntmp_cli` is the same program as `ntmp`."""

from ntmp_cli.app import main

if __name__ == "__main__":
    main()
