"""``tiercel models``: the versions that endpoints have and had."""
