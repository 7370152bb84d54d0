"""Networks that look back: a window of past frames becomes a latent beside the present one."""
