"""Entry point of `python -m sw`."""

import signal
import sys

# SIGTERM ends as Ctrl-C does: with everything that was started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    from sw.cli import main
    status = main()
except KeyboardInterrupt:  # while packages are loaded, before `main` can take it
    print("sw: interrupted", file=sys.stderr)
    status = 130
sys.exit(status)
