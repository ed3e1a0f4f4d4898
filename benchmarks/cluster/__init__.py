"""Three machines: one endpoint asked at each of them while its job moves and machines are cut off."""
