"""Networks of the learners: actors, critics, and policies that plan or correct."""
