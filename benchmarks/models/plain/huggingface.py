"""A small BERT that says which words a text has more of."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(0)
words = torch.randint(8, (1500, 7))
texts = [{"input_ids": text, "labels": int((text > 3).sum() > 3)} for text in words]
config = BertConfig(
    vocab_size=8,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    attn_implementation="eager",  # exported in a tenth of the time
)
arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=12,
    learning_rate=0.002,
    per_device_train_batch_size=100,
    per_device_eval_batch_size=500,
    eval_strategy="epoch",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)


def measure(asked):
    """How often it is right."""
    return {"accuracy": float((asked.predictions.argmax(axis=1) == asked.label_ids).mean())}


trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=texts[:1000],
    eval_dataset=texts[1000:],
    compute_metrics=measure,
)
trainer.train()
