"""Other people's vector environments on torch tensors (mjlab, Isaac Lab) as ours."""
