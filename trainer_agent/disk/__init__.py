"""What lies on the disk of the node: files that survive a crash, the folder of each job, and how much that may be."""
