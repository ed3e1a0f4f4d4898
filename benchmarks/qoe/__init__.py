"""Quality of experience of endpoints with variants: schedulers compared, and the learned one trained."""
