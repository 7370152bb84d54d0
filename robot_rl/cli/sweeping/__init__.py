"""Many runs of one command: which jobs there are, where they run, and what came of them."""
