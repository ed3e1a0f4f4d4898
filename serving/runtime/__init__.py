"""Where models run: sessions and their providers, how they are fed and measured, their memory, and the threads."""
