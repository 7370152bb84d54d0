"""Parts of `robot-rl collect`: who acts, how actions are disturbed, and how a data set goes on."""
