"""What a trained policy is worth."""
