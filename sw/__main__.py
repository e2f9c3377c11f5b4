"""Entry point of `python -m sw`."""

import sys

try:
    from sw.cli import main
    status = main()
except KeyboardInterrupt:  # while packages are loaded, before `main` can take it
    print("sw: interrupted", file=sys.stderr)
    status = 130
sys.exit(status)
