"""The dashboard: what browsers ask of the broker, translated to calls of the contract, and the pages they show."""
