"""Other people's learners in our worlds."""
