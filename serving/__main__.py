"""``python -m tiercel.serving``."""

import sys

from tiercel.serving.main import main

sys.exit(main())
