"""Found in place of NVIDIA's module where this folder is on the path: answers from the file that FAKE_NVML names."""

import os
import sys
from pathlib import Path

from testing.fake_nvml import FakeNvml

sys.modules[__name__] = FakeNvml(file=Path(os.environ["FAKE_NVML"]))  # type: ignore[assignment]
