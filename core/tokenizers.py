"""What a decoder's ONNX file may say of its tokenizer: the training library writes it, the server reads it."""

from __future__ import annotations

from typing import Final

TOKENIZER: Final = "tokenizer"
"""The key in ``metadata_props``; its value is :data:`TEXT_OF_BYTES`, or the text of a ``tokenizer.json``."""
TEXT_OF_BYTES: Final = "bytes"
"""Ids below 256 are the bytes of UTF-8."""
MAX_TOKENIZER_BYTES: Final = 16 * 1024**2
"""Largest ``tokenizer.json``, in UTF-8. Those of large models, with 128,000 to 256,000 tokens, have 7 to 32 MiB."""
