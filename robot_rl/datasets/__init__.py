"""Episodes on disk: demonstrations, interventions and other people's data, beside no learner."""
