"""Entry point of `python -m sw`."""

import sys

from sw.cli import main

sys.exit(main())
