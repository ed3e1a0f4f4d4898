"""What runs are made of: processes or containers, behind one contract."""
