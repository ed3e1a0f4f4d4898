"""The broker: accepts jobs, decides shares, follows deliveries."""
