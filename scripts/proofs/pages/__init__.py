"""What a proof has measured, kept and shown."""
