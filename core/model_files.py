"""Names of the files in a model repository that the agent, inference server, broker and client all know.

Of the others, each has its name beside what is in it: :mod:`.accuracy`, :mod:`.cheap_variants` and :mod:`.onnx_data`.
"""

from __future__ import annotations

from typing import Final

MODEL_FILE: Final = "model.onnx"
"""The model of a version."""
REFERENCE_FILE: Final = "reference.npz"
"""Inputs of a version's model, and the outputs that belong to them."""
LIVE_FILE: Final = "live.json"
"""Beside the versions of a model: which of them answers."""
VARIANTS_FILE: Final = "variants.json"
"""Of an endpoint: the models that answer for it."""
