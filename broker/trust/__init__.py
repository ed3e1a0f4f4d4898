"""Whom the broker vouches for, and to whom it opens: its authority, its certificates, the machines that joined."""
