"""Requests for models that answer on other nodes: who answers, which of them is asked, and how."""
