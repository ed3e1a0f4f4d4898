"""What a run says, its reports and its output: what goes on to the broker and what is kept, within bounds."""
