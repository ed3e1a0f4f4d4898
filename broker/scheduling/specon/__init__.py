"""SpeCon-style: slow learners move away from fast ones. Begin with ``policy.py``."""
