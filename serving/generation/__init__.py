"""Answers that are made token by token, of models with a key-value cache."""
