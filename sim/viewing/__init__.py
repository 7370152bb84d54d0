"""Looking at running worlds: what is drawn of them, a player, and the viewer in the browser."""
