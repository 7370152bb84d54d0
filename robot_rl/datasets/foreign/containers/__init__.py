"""Files of arrays that others use: HDF5 and .npz."""
