"""Brings versions up and down, off the request path: files, loads, trials of new versions, room on an accelerator."""
