"""Whether what a model is asked is like what it was asked at first."""
