"""``tiercel proxy``: an HAProxy of the operator's own in front of the inference servers, and its configuration."""
