"""Pure policies: a snapshot in, a plan out."""
