"""Libraries whose models are known here, without a script that says how they are exported and saved."""
