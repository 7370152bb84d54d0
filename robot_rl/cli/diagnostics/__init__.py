"""The doctor: what stands in the way of a deployment, each finding with its remedy."""
