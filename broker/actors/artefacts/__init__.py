"""What the broker keeps in the artefact store: copies of checkpoints, versions, and of what else it would miss."""
