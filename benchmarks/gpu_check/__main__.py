"""``python -m benchmarks.gpu_check``; ``--help`` tells the options."""

import sys

from benchmarks.gpu_check.commands import main

if __name__ == "__main__":
    sys.exit(main())
