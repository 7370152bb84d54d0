"""Networks, base policies and the deployable policy bundle."""
