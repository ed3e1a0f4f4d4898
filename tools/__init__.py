"""What builds documents, images and vendored files."""
