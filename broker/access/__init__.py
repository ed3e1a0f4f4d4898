"""Who may call, beyond the files of the state directory: tokens that are given out and taken back."""
