"""Artefacts by content, in a place that outlives the broker's machine: a folder, or a bucket that speaks S3."""
