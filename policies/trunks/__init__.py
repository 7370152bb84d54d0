"""Network shapes beyond the plain perceptron: single for actors, as an ensemble for critics."""
