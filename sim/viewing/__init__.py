"""Looking at running worlds: what is drawn of them, and a player that a person steers."""
