"""A byte-level BPE tokenizer of Hugging Face, trained on a few lines of several scripts."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

LINES = ["Grüße aus Köln, 東京 und Київ: 10 € für 🦊🦊!", "naïve café  with   spaces", "the fox and the hare, 東 京"]
VOCABULARY = 300


def small_tokenizer() -> Tokenizer:
    """One whose prompts begin with the special token of id 0."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<s>"], show_progress=False, initial_alphabet=alphabet
    )
    found.train_from_iterator(LINES, trainer)
    found.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return found
