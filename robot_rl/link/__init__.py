"""The link between robots and the learner: records, spool, store, weights, and their transport."""
