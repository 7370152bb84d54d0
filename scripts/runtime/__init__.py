"""What the commands share: runs restored into parts, sessions of training, bundles, reports."""
