"""From the plan of a proof to its measurements."""
