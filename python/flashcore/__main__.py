"""python -m flashcore: the command `flashcore`."""

import sys

from .cli import main

sys.exit(main())
