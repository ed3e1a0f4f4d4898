"""Where models run: execution providers, what they are told, their memory, and the seam that feeds them."""
