"""The network of a bundle, from its ONNX graph to a function in C99."""
