"""What the loop looks at in every tick, and when it speaks."""
