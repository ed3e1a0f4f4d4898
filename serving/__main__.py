"""``python -m tiercel.serving``."""

import sys

from tiercel.serving.memory import begin_with_huge_pages

begin_with_huge_pages()

from tiercel.serving.main import main  # noqa: E402 - what is imported before the process begins anew is imported twice

sys.exit(main())
