"""What the library knows of PyTorch. Nothing else of it imports PyTorch before a script has."""
